"""The functions that implement the operations of the admin API, named as in the table of operations."""
