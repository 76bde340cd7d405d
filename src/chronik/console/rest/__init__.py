"""The admin API: HTTP and JSON, loaded when it is first asked."""
