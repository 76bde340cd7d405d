"""Kafka API handlers, one module per API: each translates between protocol messages and the node's components.

The subpackages contain the router and the code that several handlers share.
"""
