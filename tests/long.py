"""Counts that are small in `make test` and full in `make long`, and the seed of all randomness."""

from __future__ import annotations

import os

LONG = bool(os.environ.get("CHRONIK_LONG"))
SEED = int(os.environ.get("CHRONIK_SEED", "1"))


def count(usual: int, full: int) -> int:
    return full if LONG else usual
