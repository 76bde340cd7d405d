"""Cluster monitoring from outside: the facts that `chronik top` displays and `chronik doctor` checks."""
