"""The Spark sink `chronik`: rows become records of topics.

Spark calls `writer`; each task publishes its rows with `publisher`. `exactly_once` wraps a task in a transaction and
records the micro-batches that are already written.
"""
