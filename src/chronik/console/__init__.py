"""A node's HTTP port: health, metrics, status, the admin API and the web console."""
