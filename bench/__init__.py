"""Benchmarks: Chronik compared with a minimal server in the same run (`python -m bench`)."""
