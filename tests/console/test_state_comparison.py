from __future__ import annotations

from typing import Any

from chronik.console.state_comparison import compare_states


def status(*hashes: tuple[int, str]) -> dict[str, Any]:
    index, state_hash = hashes[-1]
    return {"applied_index": index, "state_hash": state_hash, "recent_hashes": [list(each) for each in hashes]}


def test_nodes_are_compared_at_highest_common_index() -> None:
    agreement = compare_states([status((1, "a"), (2, "b"), (3, "c")), status((1, "a"), (2, "b"))])
    assert (agreement.index, agreement.is_consistent) == (2, True)


def test_diverged_nodes_report_all_hashes() -> None:
    agreement = compare_states([status((1, "a"), (2, "b")), status((1, "a"), (2, "x")), status((2, "b"))])
    assert (agreement.index, agreement.is_consistent, agreement.hashes) == (2, False, frozenset({"b", "x"}))


def test_nodes_without_common_index_are_not_consistent() -> None:
    for statuses in ([], [status((1, "a")), status((5, "e"))]):
        agreement = compare_states(statuses)
        assert (agreement.index, agreement.is_consistent) == (None, False)


def test_node_without_recent_hashes_is_compared_by_current_state() -> None:
    fresh = {"applied_index": 2, "state_hash": "b", "recent_hashes": []}
    agreement = compare_states([fresh, status((1, "a"), (2, "b"), (3, "c"))])
    assert (agreement.index, agreement.is_consistent) == (2, True)
