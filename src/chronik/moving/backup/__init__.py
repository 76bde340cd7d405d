"""A backup of a cluster: a folder of files that are written once, and a manifest that names them."""
