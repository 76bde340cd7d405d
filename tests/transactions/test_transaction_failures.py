"""Failures of producers, coordinators and leaders, outdated images and deleted topics: every transaction is decided,
and only committed records are visible.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from chronik.metadata.commands.transactions import (
    AddToTransaction,
    CompleteTransaction,
    EndTransaction,
    InitTransaction,
    StageOffsets,
)
from chronik.metadata.names import OFFSETS_TOPIC
from chronik.metadata.records import TransactionState
from chronik.peers.calls import CallKind
from chronik.protocol.errors import ErrorCode

from .history import TransactionId
from .simulation import requests
from .simulation.copier import INPUT
from .simulation.producer import MustAbort, ProducerFailed
from .simulation.requests import V1, V2, Versions
from .simulation.stage import TIMEOUT_MS, ScriptedCluster
from .test_late_requests import (
    ALL,
    FIRST,
    OF_V1,
    SECOND,
    begin_transaction,
    is_open,
    run_script,
    write_first_transaction,
)

BOTH = pytest.mark.parametrize("versions", [V1, V2], ids=["v1", "v2"])
OTHER = TransactionId("q", 0)


# Producer instances


@ALL
def test_second_instance_fences_first_and_aborts_its_transaction(versions: Versions) -> None:
    async def script(stage: ScriptedCluster) -> None:
        zombie = await begin_transaction(stage, versions)
        await zombie.send(stage.output, 0)
        other = stage.producer(versions, "q")
        await other.init()
        with pytest.raises((MustAbort, ProducerFailed)):
            await zombie.send(stage.output, 0)
        with pytest.raises((MustAbort, ProducerFailed)):
            await zombie.send(stage.output, 1)
        with pytest.raises(ProducerFailed, match=r"PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
            await zombie.commit()
        zombie.record_failure()
        other.begin()
        await other.send(stage.output, 0)
        await other.commit()

    assert run_script(script).outcomes(FIRST, OTHER) == [False, True]


@ALL
def test_second_instance_waits_for_pending_commit_of_first(versions: Versions) -> None:
    """The commit stands; the new instance only waits for the markers."""

    async def script(stage: ScriptedCluster) -> None:
        first = await begin_transaction(stage, versions)
        await first.send(stage.output, 0)
        stage.move_coordinator(next(node for node in stage.hosts if node != stage.leader(0)))
        late = stage.hold_calls(CallKind.MARKERS)
        await first.commit()
        other = stage.producer(versions, "q")
        task = asyncio.ensure_future(other.init())
        await stage.wait_until(lambda: stage.held_call_count > 0)
        assert stage.transaction.state is TransactionState.PREPARE_COMMIT
        stage.pass_calls(CallKind.MARKERS)
        late.set()
        await task
        other.begin()
        await other.send(stage.output, 0)
        await other.commit()

    assert run_script(script).outcomes(FIRST, OTHER) == [True, True]


@ALL
def test_producer_is_fenced_after_transaction_timeout(versions: Versions) -> None:
    async def script(stage: ScriptedCluster) -> None:
        producer = await begin_transaction(stage, versions)
        await producer.send(stage.output, 0)
        await asyncio.sleep(TIMEOUT_MS / 1000 + 1)
        await stage.wait_until(lambda: stage.transaction.state is TransactionState.COMPLETE_ABORT, "the timeout")
        with pytest.raises((ProducerFailed, MustAbort)):
            await producer.commit()
        producer.record_failure()

    assert run_script(script).outcomes(FIRST) == [False]


@BOTH
def test_init_with_current_epoch_returns_next_epoch(versions: Versions) -> None:
    """KIP-360: the producer need not fence itself."""

    async def script(stage: ScriptedCluster) -> None:
        producer = await begin_transaction(stage, versions)
        await producer.send(stage.output, 0)
        before = producer.who
        await producer.abort()
        await producer.init()
        assert producer.who.id == before.id
        assert producer.who.epoch > before.epoch
        producer.begin()
        await producer.send(stage.output, 0)
        await producer.commit()
        old = requests.init(before, TIMEOUT_MS, versions.init_producer_id)
        answer = await stage.deliver_late(stage.coordinator, old)  # a late duplicate fences no producer
        assert answer.code is ErrorCode.PRODUCER_FENCED or answer[1:] == producer.who[1:]
        producer.begin()
        await producer.send(stage.output, 0)
        await producer.commit()

    assert run_script(script).outcomes(FIRST, SECOND, TransactionId("p", 2)) == [False, True, True]


@pytest.mark.parametrize("commit", [True, False])
def test_producer_with_exhausted_epochs_gets_new_producer_id(commit: bool) -> None:
    count = 12

    async def script(stage: ScriptedCluster) -> None:
        producer = stage.producer(V2)
        await producer.init()
        ids = {producer.who.id}
        for _ in range(count):
            producer.begin()
            await producer.send(stage.output, 0)
            await (producer.commit() if commit else producer.abort())
            ids.add(producer.who.id)
        assert len(ids) > 2

    stage = run_script(script, epoch_max=5)
    assert stage.outcomes(*(TransactionId("p", number) for number in range(count))) == [commit] * count


@ALL
def test_instances_fence_each_other_across_epoch_exhaustion(versions: Versions) -> None:
    async def script(stage: ScriptedCluster) -> None:
        for number in range(8):
            zombie = stage.producer(versions, f"zombie-{number}")
            await zombie.init()
            zombie.begin()
            await zombie.send(stage.output, 0)
            other = stage.producer(versions, f"other-{number}")
            await other.init()
            with pytest.raises((MustAbort, ProducerFailed)):
                await zombie.send(stage.output, 0)
            zombie.record_failure()
            other.begin()
            await other.send(stage.output, 0)
            await other.commit()

    stage = run_script(script, epoch_max=5)
    assert stage.outcomes(*(TransactionId(f"zombie-{number}", 0) for number in range(8))) == [False] * 8
    assert stage.outcomes(*(TransactionId(f"other-{number}", 0) for number in range(8))) == [True] * 8


# Coordinators


@ALL
@pytest.mark.parametrize("commit", [True, False])
def test_new_coordinator_writes_markers_after_crash(versions: Versions, commit: bool) -> None:
    async def script(stage: ScriptedCluster) -> None:
        producer = await begin_transaction(stage, versions)
        await producer.send(stage.output, 0)
        await producer.send(stage.output, 1)
        host = stage.hosts[3]
        stage.move_coordinator(3)
        stage.move_leader(0, 1)
        stage.move_leader(1, 2)
        stage.hold_calls(CallKind.MARKERS)
        await (producer.commit() if commit else producer.abort())
        await stage.wait_until(lambda: stage.transaction.state.is_prepared)
        stage.kill(host, loses_power=True)
        stage.pass_calls(CallKind.MARKERS)
        stage.move_coordinator(1)
        await stage.wait_until(lambda: stage.transaction.state.is_idle, "the new coordinator to write the markers")
        stage.start(host)

    assert run_script(script).outcomes(FIRST) == [commit]


@BOTH
def test_briefly_fenced_coordinator_writes_its_markers(versions: Versions) -> None:
    async def script(stage: ScriptedCluster) -> None:
        producer = await begin_transaction(stage, versions)
        await producer.send(stage.output, 0)
        stage.move_leader(0, 1)
        stage.move_coordinator(3)
        await stage.wait_until(stage._is_in_sync)
        stage.network.cut |= {(3, 1)}
        await producer.commit()
        await stage.wait_until(lambda: stage.transaction.state.is_prepared)
        process = stage.process(3)
        process.is_self_fenced = True
        await stage.wait_until(
            lambda: not process._services.transactions._marker_tasks, "the coordinator to stop sending"
        )
        process.is_self_fenced = False
        stage.network.heal()
        await stage.wait_until(lambda: stage.transaction.state.is_idle, "the markers")

    assert run_script(script).outcomes(FIRST) == [True]


@ALL
def test_replaced_coordinator_cannot_decide(versions: Versions) -> None:
    """Neither the replaced coordinator nor its client knows of the new term."""

    async def script(stage: ScriptedCluster) -> None:
        producer = await begin_transaction(stage, versions)
        await producer.send(stage.output, 0)
        stage.move_coordinator(3)
        await stage.wait_until(lambda: stage.process(3).store.image.applied_index == len(stage.consensus.log))
        stage.isolate_node(3)
        stage.move_coordinator(1)
        end = requests.end(producer.who, versions.end, commit=True)
        answer = await stage.wire.send_request(3, end)
        assert answer is None or answer.code is not ErrorCode.NONE
        await producer.abort()
        stage.isolate_node(3, is_cut_off=False)

    assert run_script(script).outcomes(FIRST) == [False]


@BOTH
@pytest.mark.parametrize(
    "kind", [InitTransaction, AddToTransaction, EndTransaction, CompleteTransaction], ids=lambda kind: kind.__name__
)
def test_late_applied_command_is_completed(versions: Versions, kind: type) -> None:
    """The client has disconnected by then, and no other request concerns the id."""

    async def script(stage: ScriptedCluster) -> None:
        producer = stage.producer(versions)
        stage.hold_commands(kind)

        async def transact() -> None:
            await producer.init()
            producer.begin()
            await producer.send(stage.output, 0)
            await producer.commit()

        task = asyncio.ensure_future(transact())
        await stage.wait_until(lambda: len(stage.held_commands) > 0, "a command to be held")
        await asyncio.sleep(4.0)
        task.cancel()
        with suppress(asyncio.CancelledError, ProducerFailed, MustAbort):
            await task
        producer.record_failure()
        await asyncio.sleep(4.0)
        stage.release_commands()

    run_script(script)


@ALL
def test_late_applied_decision_does_not_end_next_instances_transaction(versions: Versions) -> None:
    """It does not restore the old producer's epoch either. Its proposer is no longer the coordinator."""

    async def script(stage: ScriptedCluster) -> None:
        first = await begin_transaction(stage, versions)
        await first.send(stage.output, 0)
        stage.hold_commands(EndTransaction)
        task = asyncio.ensure_future(first.commit())
        await stage.wait_until(lambda: len(stage.held_commands) > 0, "a command to be held")
        stage.hold_commands()
        task.cancel()
        stage.move_coordinator(next(node for node in stage.hosts if node != stage.coordinator))
        other = stage.producer(versions, "q")
        await other.init()
        other.begin()
        await other.send(stage.output, 0)
        stage.release_commands()
        await stage.wait_until(stage._is_in_sync)
        assert is_open(stage, other)
        assert stage.transaction.state is TransactionState.ONGOING
        await other.abort()
        first.record_failure()

    assert run_script(script).outcomes(FIRST, OTHER) == [False, False]


# Leaders


@ALL
def test_outdated_leader_accepts_records_once_image_catches_up(versions: Versions) -> None:
    async def script(stage: ScriptedCluster) -> None:
        producer = stage.producer(versions, timeout_ms=30_000)
        await producer.init()
        producer.begin()
        leader = stage.leader(0)
        stage.move_coordinator(next(node for node in stage.hosts if node != leader))
        await stage.wait_until(lambda: stage.process(leader).store.image.applied_index == len(stage.consensus.log))
        stage.isolate_node(leader)
        task = asyncio.ensure_future(producer.send(stage.output, 0))
        await asyncio.sleep(6.0)
        assert not task.done()
        assert stage.leader_replica(0).log.log_end_offset == 0
        stage.isolate_node(leader, is_cut_off=False)
        await task
        await producer.commit()

    assert run_script(script).outcomes(FIRST) == [True]


@ALL
def test_open_transaction_survives_leader_change(versions: Versions) -> None:
    async def script(stage: ScriptedCluster) -> None:
        producer = await begin_transaction(stage, versions)
        await producer.send(stage.output, 0)
        stage.move_leader(0, next(node for node in stage.hosts if node != stage.leader(0)))
        await stage.wait_until(stage._is_in_sync)
        await producer.send(stage.output, 0)
        assert is_open(stage, producer)
        assert stage.leader_replica(0).last_stable_offset == 0
        await producer.commit()

    assert run_script(script).outcomes(FIRST) == [True]


def test_last_stable_offset_waits_for_committed_marker() -> None:
    """A marker that only the leader has may be lost with the leader."""

    async def script(stage: ScriptedCluster) -> None:
        producer = await begin_transaction(stage, V2)
        await producer.send(stage.output, 0)
        leader = stage.leader(0)
        others = [node for node in stage.hosts if node != leader]
        stage.move_coordinator(leader)
        await stage.wait_until(stage._is_in_sync)
        stage.network.cut |= {(node, leader) for node in others}
        await producer.commit()
        replica = stage.leader_replica(0)
        await stage.wait_until(lambda: replica.log.log_end_offset == 2, "the marker to be written")
        assert (replica.high_watermark, replica.last_stable_offset) == (1, 0)
        stage.network.heal()

    assert run_script(script).outcomes(FIRST) == [True]


# Topics


@ALL
def test_recreated_topic_gets_no_records_or_markers_of_old_transaction(versions: Versions) -> None:
    async def script(stage: ScriptedCluster) -> None:
        topic = stage.create("passing")
        await stage.wait_until(stage._is_in_sync)
        producer = await begin_transaction(stage, versions)
        await producer.send(topic, 0)
        await producer.send(stage.output, 0)
        stage.delete(topic)
        again = stage.create("passing")
        await stage.wait_until(stage._is_in_sync)
        if versions is not V2:
            producer._added.add((again.id, 0))  # the client believes that the topic is part of the transaction
            with pytest.raises(MustAbort):
                await producer.send(again, 0)
            await producer.abort()
        else:
            await producer.commit()
        await stage.wait_until(lambda: stage.transaction.state.is_idle)
        assert stage.leader_replica(0, "passing").log.log_end_offset == 0
        stage.record_deleted_topic(topic)

    run_script(script)


@ALL
def test_transaction_with_only_deleted_topics_completes(versions: Versions) -> None:
    async def script(stage: ScriptedCluster) -> None:
        topic = stage.create("passing")
        await stage.wait_until(stage._is_in_sync)
        producer = await begin_transaction(stage, versions)
        await producer.send(topic, 0)
        late = stage.hold_calls(CallKind.MARKERS)
        stage.move_coordinator(next(node for node in stage.hosts if node != stage.leader(0, "passing")))
        await producer.commit()
        stage.delete(topic)
        stage.record_deleted_topic(topic)
        late.set()
        await stage.wait_until(lambda: stage.transaction.state.is_idle)

    run_script(script)


# Offsets


@ALL
@pytest.mark.parametrize("commit", [True, False])
def test_transactional_offsets_become_visible_with_commit(versions: Versions, commit: bool) -> None:
    async def script(stage: ScriptedCluster) -> None:
        producer = await begin_transaction(stage, versions)
        await producer.send(stage.output, 0)
        await producer.stage("g", INPUT, 7)
        ask = requests.fetch_offset("g", INPUT)
        for node in stage.hosts:
            assert (await stage.deliver_late(node, ask))[0] is ErrorCode.UNSTABLE_OFFSET_COMMIT
        await (producer.commit() if commit else producer.abort())
        for node in stage.hosts:
            assert await stage.deliver_late(node, ask) == (ErrorCode.NONE, 7 if commit else -1)

    assert run_script(script).outcomes(FIRST) == [commit]


@BOTH
def test_late_offsets_are_not_part_of_later_transaction(versions: Versions) -> None:
    async def script(stage: ScriptedCluster) -> None:
        producer = await begin_transaction(stage, versions)
        await producer.send(stage.output, 0)
        await producer.stage("g", INPUT, 7)
        late = requests.stage(producer.who, "g", INPUT, 6, versions.offset_commit)
        await producer.commit()
        producer.begin()
        await producer.send(stage.output, 0)
        answer = await stage.deliver_late(stage.coordinator_of(OFFSETS_TOPIC, "g"), late)
        assert answer.code is not ErrorCode.NONE
        await producer.commit()
        assert await stage.deliver_late(1, requests.fetch_offset("g", INPUT)) == (ErrorCode.NONE, 7)

    assert run_script(script).outcomes(FIRST, SECOND) == [True, True]


@OF_V1
def test_offsets_applied_after_transaction_end_are_dropped(versions: Versions) -> None:
    """Even if the next transaction contains the same group."""

    async def script(stage: ScriptedCluster) -> None:
        producer = await begin_transaction(stage, versions)
        await producer.send(stage.output, 0)
        stage.hold_commands(StageOffsets)
        task = asyncio.ensure_future(producer.stage("g", INPUT, 7))
        await stage.wait_until(lambda: len(stage.held_commands) > 0, "a command to be held")
        task.cancel()
        await producer.abort()
        producer.begin()
        await producer.send(stage.output, 0)
        await producer.add_group("g")
        stage.release_commands()
        await producer.commit()
        assert (await stage.deliver_late(1, requests.fetch_offset("g", INPUT)))[1] == -1

    assert run_script(script).outcomes(FIRST, SECOND) == [False, True]


@BOTH
def test_group_coordinator_with_outdated_image_accepts_offsets(
    versions: Versions,
) -> None:
    """The next transaction has the same producer id, epoch and group. A v1 producer must not get an error."""

    async def script(stage: ScriptedCluster) -> None:
        producer = await begin_transaction(stage, versions)
        behind = stage.coordinator_of(OFFSETS_TOPIC, "g")
        other = next(node for node in stage.hosts if node != behind)
        stage.move_coordinator(other)
        stage.move_leader(0, other)
        await producer.send(stage.output, 0)
        await producer.stage("g", INPUT, 7)
        with stage.freeze_image(behind):
            await producer.commit()
            producer.begin()
            await producer.send(stage.output, 0)
            stage.hold_commands(StageOffsets)
            task = asyncio.ensure_future(producer.stage("g", INPUT, 8))
            if versions is V1:  # with v2, the coordinator waits for the image first
                await stage.wait_until(lambda: len(stage.held_commands) > 0, "a command to be held")
        stage.release_commands()
        await task
        await producer.commit()
        assert await stage.deliver_late(1, requests.fetch_offset("g", INPUT)) == (ErrorCode.NONE, 8)

    assert run_script(script).outcomes(FIRST, SECOND) == [True, True]


def test_transaction_without_faults_becomes_visible() -> None:
    """A transaction without faults, which checks the test bench itself."""

    async def script(stage: ScriptedCluster) -> None:
        await write_first_transaction(stage, V2)

    assert run_script(script).outcomes(FIRST) == [True]
