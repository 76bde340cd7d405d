"""The measurements of the pipeline (`python -m bench.pipeline`): topics into tables, and queries of them."""
