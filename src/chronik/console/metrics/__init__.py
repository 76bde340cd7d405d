"""The metrics of `/metrics`: the declared families, and the code that collects their samples."""
