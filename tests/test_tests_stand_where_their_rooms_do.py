"""The tests of a room are in the folder of the same name: tests/log/files for src/chronik/log/files.

Tests of a module beside the rooms, and of the house as a whole, are in tests itself; those of the platform as a whole,
which is what users run, in folders of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
HOUSE = TESTS.parent / "src" / "chronik"

WHOLE = {
    "abuse": "hostile clients beside honest ones: make abuse",
    "chaos": "three nodes under faults: make chaos",
    "clients": "clients of others, against one broker",
    "cluster": "three nodes, as clients see them",
    "docs": "the pages: what they show is run, and what is written by programs is up to date",
    "faults": "one node, killed, damaged and starved",
    "folders": "data folders of earlier versions",
    "levels": "clusters of two versions",
    "linearizability": "what judges histories of the cluster",
    "packaging": "wheels, a unit of systemd and an image: make package",
}
HELPERS = {
    "abuse/doors": "attacks on listeners with TLS and logins",
    "abuse/floods": "many connections that repeat expensive requests, in a process of their own",
    "bench/pipeline": "benchmarks of tables, as in bench/pipeline",
    "clients/drivers": "programs that drive other clients",
    "groups/failover": "a simulation of coordinators that fail",
    "raft/scenarios": "stories in plain text",
    "transactions/simulation": "the simulation of replication, with transactions",
}
TESTED_AROUND = {
    "api/fetching": "parts of Fetch, by its tests",
    "api/producing": "parts of Produce, by its tests",
    "api/routing": "by requests, in tests/api",
    "api/shared": "by the APIs that share it",
    "console/rest/doing": "by operations, in tests/console/rest",
    "console/rest/shapes": "by operations, in tests/console/rest",
    "metadata/commands": "by what they do, in tests/metadata",
    "metadata/handlers": "by commands, in tests/metadata",
    "metadata/security": "by commands, in tests/metadata",
    "node/security": "by nodes whose listeners have it, in tests/api, tests/clients and tests/tls",
    "pipeline": "what is beside its rooms, by those that use it",
    "pipeline/audit/logs": "by audits, in tests/pipeline/audit",
    "pipeline/audit/rows": "by audits, in tests/pipeline/audit",
    "pipeline/tables/delta": "by tables of all formats",
    "pipeline/tables/values": "by tables of all formats",
    "protocol/compiling": "by every message, in tests/protocol/messages",
}
"""Rooms without tests of their own: those of the rooms around them, or within, see what they do."""


def rooms() -> set[str]:
    return {path.parent.relative_to(HOUSE).as_posix() for path in HOUSE.rglob("*.py")} - {"."}


def folders() -> set[str]:
    return {path.parent.relative_to(TESTS).as_posix() for path in TESTS.rglob("*.py")} - {"."}


def test_every_room_has_its_tests() -> None:
    tested = {path.parent.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")}
    assert len(rooms()) > 20
    assert rooms() - tested == set(TESTED_AROUND)


def test_every_folder_is_a_room_or_says_what_it_is() -> None:
    assert folders() - rooms() <= set(WHOLE) | set(HELPERS)


@pytest.mark.parametrize("name", [*WHOLE, *HELPERS])
def test_what_is_no_room_is_there(name: str) -> None:
    assert any((TESTS / name).iterdir())
    assert name not in rooms()
