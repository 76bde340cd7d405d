"""Maintenance of tables that landing does by itself: its policy, merges of small files, and vacuum.

`maintenance` has the commands that users run.
"""
