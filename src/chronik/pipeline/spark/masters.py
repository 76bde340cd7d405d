"""Where Spark runs, by the name of its master: in this process, on a cluster, or behind a Connect server."""

from __future__ import annotations

import os
from collections.abc import Mapping

LOCAL_MASTER = "local[*]"
LOOPBACK = "127.0.0.1"


def chosen_master(given: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """Returns the one that the caller names, or else the user's own; None when nobody has named one."""
    return given or environment.get("CHRONIK_SPARK_MASTER") or None


def is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def is_connect(master: str) -> bool:
    """Says whether it is a Spark Connect server: nothing of Spark runs here then, not even Java."""
    return master.startswith("sc://")
