"""The admin API: JSON over HTTP. It is imported on the first request."""
