"""A cluster grows from three to seven nodes, replaces two of the first three, and shrinks to three, by operator
commands and under load of four kinds of clients. (`make test` uses five nodes and replaces one.)

A quorum must exist at all times. A watch writes to the metadata log twenty times a second through all members. An
acknowledgement proves a majority of voters, so the time between two of them bounds the time without a quorum; it must
not exceed an election on a busy machine. Twice a second, the leader must report three or more voters, of which more
than half are running.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.client_catalog import CLIENTS
from tests.cluster import replication_helpers
from tests.cluster.replication_helpers import collect_unclosed_sockets  # noqa: F401 - a fixture
from tests.cluster.trips import FIRST, FULL, SHORT, TripResult, run_trip
from tests.run_size import IS_LONG_RUN, SEED, sized

pytestmark = [pytest.mark.xdist_group("cluster"), *replication_helpers.KAFKA_PYTHON_LEAVES_SOCKETS]

Summary = Callable[[str, object], None]

DRIVEN = ("kafkajs", "java-4") if IS_LONG_RUN else ("kafkajs",)
PARTY = FULL if IS_LONG_RUN else SHORT
SEEDS = sized(1, 20)
WITHOUT_WRITES_SECONDS_MAX = 5.0
"""A write takes milliseconds, a third of a second during a leadership transfer, and a second after a leader is lost.
The rest is for a busy machine."""
VOTERS_MIN = 3
VOTERS_MAX = 6
"""Five, plus the successor of one of them until it is removed."""


def check_quorum(travelled: TripResult) -> None:
    watch = travelled.watch
    assert watch.longest[0] < WITHOUT_WRITES_SECONDS_MAX, watch.summary()
    assert not watch.without_majority, watch.without_majority[:3]
    check_voters(travelled)


def check_voters(travelled: TripResult) -> None:
    counts = list(map(len, travelled.watch.voters_seen))
    assert VOTERS_MIN <= min(counts) <= 5 <= max(counts) <= VOTERS_MAX, travelled.watch.voters_seen


def test_growing_and_shrinking_cluster_is_invisible_to_applications(tmp_path: Path, record_property: Summary) -> None:
    travelled = run_trip(tmp_path, SEED, driven=DRIVEN, party=PARTY, say=print)
    assert not travelled.problems, travelled.problems
    check_quorum(travelled)
    record_property("summary", f"three nodes, {len(FIRST) + len(PARTY.added)}, three: {travelled.summary()}")


@pytest.mark.skipif(not IS_LONG_RUN, reason="minutes: make long, or .venv/bin/python -m tests.cluster.trips")
@pytest.mark.parametrize("seed", range(SEED, SEED + SEEDS))
def test_growing_and_shrinking_under_faults_loses_no_records(
    tmp_path: Path, seed: int, record_property: Summary
) -> None:
    driven = "java-4" if CLIENTS["java-4"].missing_reason() is None else "kafkajs"
    travelled = run_trip(tmp_path, seed, driven=[driven], with_faults=True, say=print)
    assert not travelled.problems, travelled.problems
    check_voters(travelled)
    record_property("summary", f"three nodes, seven, three, seed {seed}: {travelled.summary()}")
