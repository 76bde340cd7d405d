"""Benchmarks behind docs/benchmarks.md: Chronik compared with a minimal server in the same run (`python -m bench`)."""
