"""Power failures at every write, sync and rename of a script, on a disk that loses everything it may lose."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable

import pytest

from chronik.clock import ManualClock
from tests.files.simulated_files import SimulatedFileSystem
from tests.run_size import sized

from .harness import NOW_MS
from .script import (
    AcknowledgedState,
    ScriptedNode,
    accept_current_state,
    check_node,
    check_partitions,
    new_states,
    run_script,
)

pytestmark = pytest.mark.slow

OPERATIONS = 1000

# Each event is a power failure, tried with this many variants of what survives it.
IMAGES_PER_CUT = sized(1, 10)

SHARES = 4


@pytest.mark.parametrize("share", range(SHARES))
def test_power_failure_at_any_event_keeps_exactly_acknowledged_records(
    share: int, record_property: Callable[[str, object], None]
) -> None:
    files = SimulatedFileSystem()
    promises = new_states()
    cuts = records = 0

    def cut(action: str, path: str) -> None:
        nonlocal cuts, records
        if files.events % SHARES != share:
            return
        for image in range(IMAGES_PER_CUT):
            after = files.crash(files.events * 1000 + image)
            try:
                records += check_partitions(after, _copy_promises(promises))
            except Exception as error:
                raise AssertionError(
                    f"power failure before event {files.events} ({action} {path}), image {image}"
                ) from error
            cuts += 1

    files.before_event = cut
    run_script(files, promises, seed=7, operations=OPERATIONS)
    assert files.events > 2 * OPERATIONS
    assert cuts >= files.events // SHARES
    assert records > cuts
    record_property(
        "summary", f"power failures, share {share + 1} of {SHARES}: {cuts} cuts, no acknowledged record lost"
    )


@pytest.mark.parametrize("seed", range(3))
def test_kill_at_any_event_loses_no_appended_record(seed: int) -> None:
    files = SimulatedFileSystem()
    promises = new_states()
    run_script(files, promises, seed, operations=300)
    for number, promise in enumerate(promises):
        if promise.written:
            promise.acknowledged_end = max(promise.written) + 1
        assert promise.written, f"partition {number} was never written to"
    assert check_partitions(files.kill(), promises) > 50


def test_consecutive_power_failures_lose_no_acknowledged_record() -> None:
    files = SimulatedFileSystem()
    promises = new_states()
    run_script(files, promises, seed=3, operations=400)
    for seed in range(40):
        once = files.crash(seed)
        events: list[SimulatedFileSystem] = []
        once.before_event = lambda action, path, once=once, seed=seed, events=events: events.append(once.crash(seed))
        check_partitions(once, _copy_promises(promises))
        for twice in events:
            check_partitions(twice, _copy_promises(promises))


@pytest.mark.parametrize("seed", [77, *range(sized(12, 200))])
def test_log_survives_many_power_failures_and_kills(seed: int) -> None:
    files = SimulatedFileSystem()
    promises = new_states()
    records = 0
    for life in range(25):
        chance = random.Random(seed * 1000 + life)
        last_event = files.events + chance.randint(1, 150)
        files.before_event = lambda action, path, files=files, last=last_event: _crash_at(files, last)
        with contextlib.suppress(_SimulatedCrash):
            run_script(files, promises, seed * 1000 + life, operations=100)
        files = files.crash(life) if chance.random() < 0.7 else files.kill()
        node = ScriptedNode(files, ManualClock(NOW_MS), promises)
        records += check_node(node)
        accept_current_state(node)
    assert records > 100


class _SimulatedCrash(Exception):
    pass


def _crash_at(files: SimulatedFileSystem, last_event: int) -> None:
    if files.events >= last_event:
        raise _SimulatedCrash


def _copy_promises(promises: list[AcknowledgedState]) -> list[AcknowledgedState]:
    """Return a copy that is cheap enough for every event: it shares the written records, which do not change."""
    return [copy.copy(promise) for promise in promises]
