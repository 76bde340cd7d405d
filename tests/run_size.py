"""Test sizes: small in `make test`, full in `make long`; and the seed of all random tests."""

from __future__ import annotations

import os

IS_LONG_RUN = bool(os.environ.get("CHRONIK_LONG"))
SEED = int(os.environ.get("CHRONIK_SEED", "1"))


def sized(usual: int, full: int) -> int:
    """Return the full count in a long run, else the usual one."""
    return full if IS_LONG_RUN else usual
