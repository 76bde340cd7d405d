"""Whether nodes hold the same state, judged by their status pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec


class Agreement(msgspec.Struct, frozen=True):
    index: int | None
    """The highest index at which all of them can be compared; None when they are too far apart."""
    hashes: frozenset[str]
    """What they hold there: one hash, or they have diverged."""

    @property
    def is_same(self) -> bool:
        return len(self.hashes) == 1


def compare_states(statuses: Iterable[Mapping[str, Any]]) -> Agreement:
    """Compares hashes at an index that all have: nodes under load are some commands apart, so each has recent ones."""
    histories = [_history(status) for status in statuses]
    common = set.intersection(*(set(history) for history in histories)) if histories else set()
    if not common:
        return Agreement(None, frozenset())
    index = max(common)
    return Agreement(index, frozenset(history[index] for history in histories))


def _history(status: Mapping[str, Any]) -> dict[int, str]:
    return {**dict(status["recent_hashes"]), status["applied_index"]: status["state_hash"]}
