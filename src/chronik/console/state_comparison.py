"""Comparison of the metadata state of several nodes, based on their status pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec


class StateComparison(msgspec.Struct, frozen=True):
    """The result of comparing the state hashes of several nodes, which are hashes of their metadata."""

    index: int | None
    """The highest log index at which all nodes report a state hash; None if there is no common index."""
    hashes: frozenset[str]
    """The distinct state hashes at that index. More than one means that the nodes have diverged."""

    @property
    def is_consistent(self) -> bool:
        """Whether all nodes have the same state at the compared index."""
        return len(self.hashes) == 1


def compare_states(statuses: Iterable[Mapping[str, Any]]) -> StateComparison:
    """Compare the nodes' state hashes at the highest log index that all of them report.

    Under load, nodes are a few commands apart. Each status therefore contains the hashes of recent indexes too.
    """
    histories = [_index_state_hashes(status) for status in statuses]
    common = set.intersection(*(set(history) for history in histories)) if histories else set()
    if not common:
        return StateComparison(None, frozenset())
    index = max(common)
    return StateComparison(index, frozenset(history[index] for history in histories))


def _index_state_hashes(status: Mapping[str, Any]) -> dict[int, str]:
    return {**dict(status["recent_hashes"]), status["applied_index"]: status["state_hash"]}
