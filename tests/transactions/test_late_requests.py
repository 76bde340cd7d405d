"""The cases of KIP-890: a request or marker arrives when its producer is in a later transaction, or in none.

With an epoch per transaction (v2), it has no effect. v1 clients have one epoch for many transactions: records are
verified, so that no transaction hangs, and markers carry their decision. The last tests show what remains possible.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from chronik.peers.calls import CallKind
from chronik.protocol.errors import ErrorCode
from chronik.transactions.config import PRODUCER_EPOCH_MAX

from .history import TransactionId
from .simulation import requests
from .simulation.producer import TransactionalProducer
from .simulation.requests import OLD_VERSIONS, V1, V2, Versions
from .simulation.stage import ScriptedCluster

FIRST, SECOND = TransactionId("p", 0), TransactionId("p", 1)
ALL = pytest.mark.parametrize("versions", [OLD_VERSIONS, V1, V2], ids=["old", "v1", "v2"])
OF_V1 = pytest.mark.parametrize("versions", [OLD_VERSIONS, V1], ids=["old", "v1"])

Story = Callable[[ScriptedCluster], Coroutine[Any, Any, None]]


def run_script(script: Story, *, epoch_max: int = PRODUCER_EPOCH_MAX) -> ScriptedCluster:
    """Run a scripted test in a cluster that violates no guarantee."""
    stage = ScriptedCluster(epoch_max)
    assert stage.run_script(script) == ([], [])
    return stage


async def begin_transaction(stage: ScriptedCluster, versions: Versions) -> TransactionalProducer:
    producer = stage.producer(versions)
    await producer.init()
    producer.begin()
    return producer


async def write_first_transaction(
    stage: ScriptedCluster, versions: Versions, *, commit: bool = True
) -> TransactionalProducer:
    """Run the first transaction."""
    producer = await begin_transaction(stage, versions)
    await producer.send(stage.output, 0)
    await (producer.commit() if commit else producer.abort())
    return producer


def is_open(stage: ScriptedCluster, producer: TransactionalProducer, index: int = 0) -> bool:
    return producer.who.id in stage.leader_replica(index).log.producers.transactions.open


# EndTxn


@pytest.mark.parametrize("commit", [True, False])
def test_late_end_txn_does_not_end_next_transaction(commit: bool) -> None:
    async def script(stage: ScriptedCluster) -> None:
        producer = await begin_transaction(stage, V2)
        await producer.send(stage.output, 0)
        end = requests.end(producer.who, V2.end, commit=commit)
        await (producer.commit() if commit else producer.abort())
        producer.begin()
        await producer.send(stage.output, 0)
        answer = await stage.deliver_late(stage.coordinator, end)
        assert answer.code is ErrorCode.PRODUCER_FENCED
        assert is_open(stage, producer)
        await producer.send(stage.output, 1)
        await (producer.abort() if commit else producer.commit())

    assert run_script(script).outcomes(FIRST, SECOND) == [commit, not commit]


@ALL
def test_repeated_end_txn_returns_first_result(versions: Versions) -> None:
    async def script(stage: ScriptedCluster) -> None:
        producer = await begin_transaction(stage, versions)
        await producer.send(stage.output, 0)
        end = requests.end(producer.who, versions.end, commit=True)
        await producer.commit()
        answer = await stage.deliver_late(stage.coordinator, end)
        assert answer.code is ErrorCode.NONE
        if versions is V2:
            assert answer[1:] == producer.who[1:]
        other = requests.end(producer.who, versions.end, commit=False)
        if versions is not V2:
            assert (await stage.deliver_late(stage.coordinator, other)).code is ErrorCode.INVALID_TXN_STATE

    assert run_script(script).outcomes(FIRST) == [True]


# Markers


@ALL
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("is_replaced", [True, False])
def test_late_marker_does_not_end_next_transaction(versions: Versions, commit: bool, is_replaced: bool) -> None:
    """The old coordinator or a new one has sent the marker again."""

    async def script(stage: ScriptedCluster) -> None:
        producer = await begin_transaction(stage, versions)
        await producer.send(stage.output, 0)
        leader = stage.leader(0)
        first, second = (node for node in stage.hosts if node != leader)
        stage.move_coordinator(first)
        late = stage.hold_calls(CallKind.MARKERS)
        await (producer.commit() if commit else producer.abort())
        await stage.wait_until(lambda: stage.held_call_count > 0, "the marker to be held")
        stage.pass_calls(CallKind.MARKERS)
        if is_replaced:
            stage.move_coordinator(second)
        await stage.wait_until(lambda: stage.transaction.state.is_idle, "the marker to be sent again")
        producer.begin()
        await producer.send(stage.output, 0)
        late.set()
        await stage.wait_until(lambda: stage.held_call_count == 0, "the marker to arrive")
        assert is_open(stage, producer)
        await (producer.abort() if commit else producer.commit())

    assert run_script(script).outcomes(FIRST, SECOND) == [commit, not commit]


@ALL
def test_duplicate_marker_is_appended_once(versions: Versions) -> None:
    async def script(stage: ScriptedCluster) -> None:
        producer = await begin_transaction(stage, versions)
        await producer.send(stage.output, 0)
        leader = stage.leader(0)
        first, second = (node for node in stage.hosts if node != leader)
        stage.move_coordinator(first)
        late = stage.hold_calls(CallKind.MARKERS)
        await producer.commit()
        await stage.wait_until(lambda: stage.held_call_count > 0, "the marker to be held")
        stage.pass_calls(CallKind.MARKERS)
        stage.move_coordinator(second)
        await stage.wait_until(lambda: stage.transaction.state.is_idle, "another coordinator to write the markers")
        end = stage.leader_replica(0).log.log_end_offset
        late.set()
        await stage.wait_until(lambda: stage.held_call_count == 0, "the marker to arrive")
        assert stage.leader_replica(0).log.log_end_offset == end

    assert run_script(script).outcomes(FIRST) == [True]


# Records


REFUSALS = {
    OLD_VERSIONS: ErrorCode.INVALID_TXN_STATE,
    V1: ErrorCode.TRANSACTION_ABORTABLE,
    V2: ErrorCode.INVALID_PRODUCER_EPOCH,
}


@ALL
def test_late_record_without_open_transaction_does_not_hang(versions: Versions) -> None:
    async def script(stage: ScriptedCluster) -> None:
        producer = await begin_transaction(stage, versions)
        await producer.send(stage.output, 1)
        if versions is not V2:
            await producer.add(stage.output, 0)
        record = producer.prepare(stage.output, 0)
        await producer.abort()
        await stage.wait_until(lambda: stage.transaction.state.is_idle)
        end = stage.leader_replica(0).log.log_end_offset
        answer = await stage.deliver_late(stage.leader(0), record)
        assert answer.code in (REFUSALS[versions], ErrorCode.INVALID_PRODUCER_EPOCH)
        assert stage.leader_replica(0).log.log_end_offset == end
        assert not is_open(stage, producer)

    run_script(script)


@ALL
def test_late_record_is_not_part_of_later_transaction_on_other_partition(versions: Versions) -> None:
    async def script(stage: ScriptedCluster) -> None:
        producer = await begin_transaction(stage, versions)
        if versions is not V2:
            await producer.add(stage.output, 0)
        record = producer.prepare(stage.output, 0)
        await producer.abort()
        producer.begin()
        await producer.send(stage.output, 1)
        answer = await stage.deliver_late(stage.leader(0), record)
        assert answer.code is REFUSALS[versions]
        await producer.commit()

    assert run_script(script).outcomes(SECOND) == [True]


def test_late_record_is_not_part_of_next_transaction_on_same_partition() -> None:
    async def script(stage: ScriptedCluster) -> None:
        producer = await begin_transaction(stage, V2)
        await producer.send(stage.output, 0)
        record = producer.prepare(stage.output, 0)
        await producer.abort()
        producer.begin()
        await producer.send(stage.output, 0)
        answer = await stage.deliver_late(stage.leader(0), record)
        assert answer.code is ErrorCode.INVALID_PRODUCER_EPOCH
        await producer.commit()

    assert run_script(script).outcomes(FIRST, SECOND) == [False, True]


def test_late_record_on_outdated_leader_does_not_start_transaction() -> None:
    """The leader does not know the producer, because the partition has no records."""

    async def script(stage: ScriptedCluster) -> None:
        producer = await begin_transaction(stage, V2)
        await producer.send(stage.output, 1)
        record = producer.prepare(stage.output, 0)
        await producer.abort()
        producer.begin()
        await producer.send(stage.output, 1)
        answer = await stage.deliver_late(stage.leader(0), record)
        assert answer.code is ErrorCode.INVALID_PRODUCER_EPOCH
        await producer.commit()

    assert run_script(script).outcomes(SECOND) == [True]


# Effects that remain possible with one epoch for many transactions


def kinds_of_v1(script: Story) -> set[str]:
    """Return the kinds of violations by late v1 requests. There must be no other violations."""
    stage = ScriptedCluster()
    verdict = stage.run_script(script)
    assert verdict.violations == []
    return {finding.kind for finding in verdict.v1_violations}


@OF_V1
def test_v1_late_end_txn_ends_next_transaction(versions: Versions) -> None:
    async def script(stage: ScriptedCluster) -> None:
        producer = await begin_transaction(stage, versions)
        await producer.send(stage.output, 0)
        end, look = requests.end(producer.who, versions.end, commit=True), producer.request_observer("EndTxn")
        await producer.commit()
        producer.begin()
        await producer.send(stage.output, 0)
        assert (await stage.deliver_late(stage.coordinator, end, look)).code is ErrorCode.NONE
        await stage.wait_until(lambda: stage.transaction.state.is_idle)
        assert not is_open(stage, producer)
        await producer.send(stage.output, 1)
        await producer.abort()

    assert "aborted read (G1a)" in kinds_of_v1(script)


@OF_V1
def test_v1_late_record_becomes_part_of_next_transaction(versions: Versions) -> None:
    async def script(stage: ScriptedCluster) -> None:
        producer = await begin_transaction(stage, versions)
        await producer.add(stage.output, 0)
        record, look = producer.prepare(stage.output, 0), producer.request_observer("Produce")
        await producer.abort()
        producer.begin()
        await producer.add(stage.output, 0)
        assert (await stage.deliver_late(stage.leader(0), record, look)).code is ErrorCode.NONE
        await producer.send(stage.output, 0)
        await producer.commit()

    assert kinds_of_v1(script) == {"aborted read (G1a)"}


def test_v1_late_record_is_rejected_after_epoch_bump() -> None:
    """As with the Java client and librdkafka, for which only retried requests can be late."""

    async def script(stage: ScriptedCluster) -> None:
        producer = await begin_transaction(stage, V1)
        await producer.add(stage.output, 0)
        record = producer.prepare(stage.output, 0)
        await producer.abort(needs_epoch=True)
        producer.begin()
        await producer.send(stage.output, 0)
        answer = await stage.deliver_late(stage.leader(0), record)
        assert answer.code is ErrorCode.INVALID_PRODUCER_EPOCH
        await producer.commit()

    assert run_script(script).outcomes(SECOND) == [True]


@OF_V1
def test_v1_late_add_partitions_starts_transaction_that_times_out(versions: Versions) -> None:
    async def script(stage: ScriptedCluster) -> None:
        producer = await begin_transaction(stage, versions)
        await producer.send(stage.output, 0)
        addition = requests.add_partition(producer.who, stage.output, 0, versions.add_partitions)
        await producer.commit()
        await stage.deliver_late(stage.coordinator, addition)
        assert not stage.transaction.state.is_idle
        await stage.wait_until(lambda: stage.transaction.state.is_idle, "the timeout")

    assert run_script(script).outcomes(FIRST) == [True]
