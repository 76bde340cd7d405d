"""The Spark sink `chronik`: rows become records of topics.

Spark calls `writer`; each task publishes its rows with `publisher`. `exactly_once` wraps a task in a transaction, for
which `epoch_commits` records the micro-batches that are already written.
"""
