"""A running cluster, looked at from outside: what `chronik top` shows and `chronik doctor` judges."""
