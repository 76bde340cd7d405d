"""Metadata stores: a local one for standalone nodes, and one replicated with Raft for clusters."""
