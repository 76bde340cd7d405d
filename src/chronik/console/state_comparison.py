"""Comparison of the metadata state of several nodes, based on their status pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec


class StateComparison(msgspec.Struct, frozen=True):
    """The result of comparing the metadata of several nodes by their state hashes."""

    index: int | None
    """The highest metadata log index for which every node has reported a state hash, or None if there is none."""
    hashes: frozenset[str]
    """The distinct state hashes at that metadata log index. More than one means that the nodes have diverged."""

    @property
    def is_consistent(self) -> bool:
        """Whether all nodes have the same metadata at the compared log index."""
        return len(self.hashes) == 1


def compare_states(statuses: Iterable[Mapping[str, Any]]) -> StateComparison:
    """Compare the nodes' metadata by their state hashes at the highest log index that all nodes report.

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
