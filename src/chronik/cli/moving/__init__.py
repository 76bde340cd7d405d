"""Commands that move topics: `cluster import`, `backup` and `restore`."""
