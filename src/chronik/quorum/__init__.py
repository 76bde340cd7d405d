"""Raft at work on one node: its log and snapshots on disk, its events and instructions on an event loop."""
