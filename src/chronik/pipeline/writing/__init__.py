"""Rows of Spark to records of topics: `sink` is what Spark calls, `publishing` what a task does, and `once` how it is
done exactly once, for which `epochs` knows what was written before.
"""
