"""The measurements behind docs/benchmarks.md: Chronik beside a bare server, in one run (`python -m bench`)."""
