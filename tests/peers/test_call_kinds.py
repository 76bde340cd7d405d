"""The numbers of call kinds are part of the wire protocol and never change."""

from __future__ import annotations

from chronik.peers.call_kinds import CallKind


def test_call_kind_numbers_are_stable() -> None:
    assert {kind.name: kind.value for kind in CallKind} == {
        "FORWARD": 1,
        "PING": 2,
        "HEARTBEAT": 16,
        "QUORUM": 17,
        "JOIN": 18,
        "FETCH": 19,
        "WAKE": 20,
        "MARKERS": 21,
        "JOIN_TRANSACTION": 22,
        "ADMIN": 23,
        "STATUS": 24,
    }
