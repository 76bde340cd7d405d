"""Benchmarks of the pipeline (`python -m bench.pipeline`): landing topics in tables, and SQL queries."""
