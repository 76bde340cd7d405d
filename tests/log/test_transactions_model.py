"""Random histories of a transactional log, compared with a list of everything that was written."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.log.config import LogConfig
from tests.run_size import sized

from .harness import LogHarness, batch
from .transactional_writer import TransactionalWriter, committed_values, replicate_log

CONFIG = LogConfig(
    segment_bytes=600,
    index_interval_bytes=100,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=60_000,
    file_delete_delay_ms=0,
)
PLAIN = -1


@dataclass
class Written:
    offset: int
    producer_id: int = PLAIN
    values: list[bytes] = field(default_factory=list)
    commits: bool | None = None
    """Whether a marker commits the transaction; None for records."""


class Model:
    """A naive model that examines the complete history for every result."""

    def __init__(self) -> None:
        self.batches: list[Written] = []
        self.start = 0
        self.high_watermark = 0

    def decided(self) -> list[tuple[Written, Written | None]]:
        """Return all records with the marker that ends their transaction."""
        ends: dict[int, Written] = {}
        found: list[tuple[Written, Written | None]] = []
        for written in reversed(self.batches):
            if written.commits is not None:
                ends[written.producer_id] = written
            else:
                found.append((written, ends.get(written.producer_id)))
        return found[::-1]

    def stable(self) -> int:
        """Return the offset of the first record whose marker is not committed."""
        for written, end in self.decided():
            if written.producer_id != PLAIN and (end is None or end.offset >= self.high_watermark):
                return min(max(written.offset, self.start), self.high_watermark)
        return self.high_watermark

    def committed(self) -> list[bytes]:
        stable = self.stable()
        return [
            value
            for written, end in self.decided()
            if written.producer_id == PLAIN or (end is not None and end.commits)
            for offset, value in enumerate(written.values, written.offset)
            if self.start <= offset < stable
        ]


class History:
    """A history that is applied to the log and to the model."""

    def __init__(self) -> None:
        self.writer = TransactionalWriter(CONFIG)
        self.model = Model()
        self.count = 0

    def write(self, producer_id: int, count: int) -> None:
        # Each record has its own key, so that compaction removes only aborted records.
        values = [b"%d" % (self.count + number) for number in range(count)]
        self.count += count
        if producer_id == PLAIN:
            data = batch(*values, keys=values, timestamp=self.writer.world.clock.now_ms())
            offset = self.writer.world.append(data).base_offset
        else:
            offset = self.writer.write(producer_id, *values, keys=values)
        self.model.batches.append(Written(offset, producer_id, values))

    def end(self, producer_id: int, commit: bool, raises_epoch: bool) -> None:
        epoch = self.writer.epochs.get(producer_id, 0) + 1 if raises_epoch else None
        offset = self.writer.end(producer_id, commit=commit, epoch=epoch)
        self.model.batches.append(Written(offset, producer_id, commits=commit))

    def commit(self, share: float) -> None:
        """Advance the high watermark."""
        self.writer.world.sync()
        before = self.model.high_watermark
        goal = before + (self.writer.log.log_end_offset - before) * share
        ends = [each.offset + max(len(each.values), 1) for each in self.model.batches]
        self.model.high_watermark = max(before, *(end for end in ends if end <= goal), 0)

    def truncate(self, share: float) -> None:
        """Truncate some of the uncommitted records."""
        self.writer.world.complete_syncs()
        low, high = self.model.high_watermark, self.writer.log.log_end_offset
        self.writer.log.truncate_to(low + int((high - low) * share))
        self._ends()

    def crash(self, seed: int) -> None:
        """Simulate a power failure: unsynced writes may be lost, and a compaction may be incomplete."""
        self.writer.world = self.writer.world.reopen(self.writer.world.simulated_files.crash(seed))
        self._ends()

    def _ends(self) -> None:
        end = self.writer.log.log_end_offset
        assert end >= self.model.high_watermark
        self.model.batches = [each for each in self.model.batches if each.offset < end]
        for producer_id in range(4):
            known = self.writer.log.producers.get(producer_id)
            self.writer.begin_epoch(producer_id, 0 if known is None else known.epoch + 1)

    def delete(self, share: float) -> None:
        stable = self.model.stable()
        self.model.start = max(self.model.start, int(stable * share))
        self.writer.log.delete_records_before(self.model.start)
        self.writer.world.complete_syncs()

    def compact(self, syncs: int) -> None:
        log, world = self.writer.log, self.writer.world
        world.complete_syncs()
        if log.segment_count and log._segments.all[-1].size:
            log.roll()
        world.complete_syncs()
        job = log.begin_compaction(world.clock.now_ms(), self.model.high_watermark)
        if job is not None:
            job.run()
            assert log.complete_compaction(job)
        for _ in range(syncs):
            world.sync()
        world.clock.advance(50)

    def restart(self, how: str) -> None:
        if how == "without snapshots":
            self.writer.restart_without_snapshots()
        else:
            self.writer.world.complete_syncs()
            self.writer.restart(closes=how == "closed")

    def check(self, max_bytes: int) -> None:
        log, model = self.writer.log, self.model
        assert log.last_stable_offset(model.high_watermark) == model.stable()
        assert committed_values(log, model.high_watermark, max_bytes) == model.committed()


def finish(history: History, max_bytes: int) -> None:
    """Check the log, and that a replica of it agrees."""
    follower = replicate_log(history.writer.log, LogHarness(config=CONFIG))
    model = history.model
    assert follower.last_stable_offset(model.high_watermark) == model.stable()
    assert committed_values(follower, model.high_watermark, max_bytes) == model.committed()


shares = st.floats(0, 1)
WRITE = st.tuples(st.just("write"), st.integers(PLAIN, 3), st.integers(1, 3))
END = st.tuples(st.just("end"), st.integers(0, 3), st.booleans(), st.booleans())
STEPS = st.one_of(
    WRITE,
    END,
    WRITE,
    END,
    st.tuples(st.just("commit"), st.sampled_from([0.3, 1.0])),
    st.tuples(st.just("truncate"), shares),
    st.tuples(st.just("delete"), shares),
    st.tuples(st.just("compact"), st.integers(0, 5)),
    st.tuples(st.just("crash"), st.integers(0, 99)),
    st.tuples(st.just("restart"), st.sampled_from(["closed", "killed", "without snapshots"])),
)


@settings(max_examples=sized(50, 2000), deadline=None)
@given(st.lists(STEPS, min_size=10, max_size=60), st.sampled_from([1, 300, 5000]))
def test_transaction_state_matches_model_for_random_histories(steps: list[tuple[Any, ...]], max_bytes: int) -> None:
    history = History()
    for name, *arguments in steps:
        getattr(history, name)(*arguments)
        history.check(max_bytes)
    finish(history, max_bytes)


def random_step(random: Random) -> tuple[Any, ...]:
    kinds = ["write", "end", "commit", "truncate", "delete", "compact", "restart", "crash"]
    (kind,) = random.choices(kinds, [10, 6, 4, 0.5, 0.3, 1, 0.7, 0.7])
    if kind == "write":
        return kind, random.randint(PLAIN, 3), random.randint(1, 3)
    if kind == "end":
        return kind, random.randint(0, 3), random.random() < 0.5, random.random() < 0.3
    if kind == "restart":
        return kind, random.choice(["closed", "killed", "without snapshots"])
    if kind in ("compact", "crash"):
        return kind, random.randint(0, 5)
    return kind, random.choice([0.0, 0.5, 1.0, random.random()])


@pytest.mark.parametrize("seed", range(sized(5, 200)))
def test_transaction_state_matches_model_for_long_histories(seed: int) -> None:
    random, history = Random(seed), History()
    shrunk = unstable = seen = 0
    for _ in range(200):
        name, *arguments = random_step(random)
        size = history.writer.log.size
        getattr(history, name)(*arguments)
        history.check(random.choice([1, 300, 5000]))
        shrunk += name == "compact" and history.writer.log.size < size
        unstable += history.model.stable() < history.model.high_watermark
        seen += len(history.model.committed())
    assert min(unstable, seen) > 10
    assert shrunk or seed not in (0, 1, 2)
    finish(history, 300)
