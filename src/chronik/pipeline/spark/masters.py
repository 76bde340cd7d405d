"""Spark master URLs: local mode, a cluster, or a Spark Connect server."""

from __future__ import annotations

import os
from collections.abc import Mapping

LOCAL_MASTER = "local[*]"
RETRYING_LOCAL_MASTER = "local[*,4]"
"""Local mode with four attempts per task, as on a cluster; with `local[*]`, one killed worker fails the job."""
LOOPBACK = "127.0.0.1"


def resolve_master(given: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the given master, or else CHRONIK_SPARK_MASTER, or None if neither is set."""
    return given or environment.get("CHRONIK_SPARK_MASTER") or None


def is_local_master(master: str) -> bool:
    """Return whether the master runs Spark in this process (local mode)."""
    return master == "local" or master.startswith("local[")


def is_connect_master(master: str) -> bool:
    """Return whether the master is a Spark Connect server, which needs neither Spark nor Java in this process."""
    return master.startswith("sc://")
