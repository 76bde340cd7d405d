"""What a cluster of three nodes on this machine does, and how fast: `python -m bench.cluster`, `make bench-cluster`."""
