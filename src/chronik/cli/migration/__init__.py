"""Commands that copy topics between clusters and files: `cluster import`, `backup` and `restore`."""
