"""Benchmarks of a three-node cluster on this machine (`python -m bench.cluster`, `make bench-cluster`)."""
