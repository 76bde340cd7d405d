"""Rows of Spark to records of topics: `sink` is what Spark calls, `publishing` what a task does."""
