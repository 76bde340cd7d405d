"""The follower's side of replication: one fetch in flight to every leader that this node follows.

Records are written and synced before the next fetch, so that the fetch offset acknowledges only durable records. Where
the logs diverge, the follower truncates its own log.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import Final

from chronik.broker.replica import Replica, first_base_offset
from chronik.broker.replica_manager import ReplicaManager
from chronik.clock import Clock
from chronik.limits import MIB
from chronik.metadata.commands.topics import NO_LEADER
from chronik.peers.calls import CallRejected, CallTimedOut, PeerCalls, PeerUnavailable
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.replication.fetch_session import FollowedPartition, LeaderFetchSession
from chronik.replication.messages import FETCH, WAKE, FollowerFetchResponse, PartitionChunk, PartitionId, WakeRequest
from chronik.replication.throttle import ReplicationThrottle

logger = logging.getLogger("chronik.replication")

FETCH_TIMEOUT_SECONDS: Final = 30.0
"""Timeout of a fetch in seconds, sufficient to receive the largest record batch over a slow network."""

OPENING_SECONDS_MAX: Final = 0.02
"""Maximum time in seconds spent opening logs before each fetch. After a crash, thousands of logs may need recovery."""

WRITTEN_BYTES_PER_ITERATION: Final = 1 * MIB
"""Number of bytes written before the fetcher yields to the event loop. It yields only between partitions, so that a
partition is synced after all of its records are written."""

ISR_CHECK_SECONDS: Final = 0.1
"""Interval in seconds between checks whether a replica with lost records has left the ISR and may fetch them again."""

RECONNECT_SECONDS: Final = 0.1
"""Delay in seconds before retrying a fetch from an unreachable leader."""


class ReplicaFetchers:
    """The fetchers of a node: one for each leader whose partitions the node follows."""

    def __init__(
        self,
        node_id: int,
        replicas: ReplicaManager,
        calls: PeerCalls,
        clock: Clock,
        broker_epoch: Callable[[], int],
        throttle: ReplicationThrottle,
    ) -> None:
        self._node_id = node_id
        self._calls = calls
        self._clock = clock
        self._broker_epoch = broker_epoch
        self._throttle = throttle
        self._fetchers: dict[int, LeaderFetcher] = {}
        self._followed: dict[PartitionId, int] = {}  # leader of each partition
        self._tasks: asyncio.TaskGroup | None = None
        replicas.listeners.append(self._on_replica_changed)

    def _on_replica_changed(self, replica: Replica) -> None:
        key = (replica.topic_id, replica.index)
        follows = not replica.is_abandoned and replica.isr_state is None
        leader = replica.leader if follows and replica.leader != self._node_id else NO_LEADER
        previous = self._followed.pop(key, NO_LEADER)
        if previous not in (leader, NO_LEADER):
            self._fetchers[previous].unfollow(key)
        if leader != NO_LEADER:
            self._followed[key] = leader
            self._get_or_create_fetcher(leader).follow(replica)

    def _get_or_create_fetcher(self, leader: int) -> LeaderFetcher:
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = LeaderFetcher(self._node_id, leader, self._calls, self._clock, self._broker_epoch, self._throttle)
            self._fetchers[leader] = fetcher
            if self._tasks is not None:
                self._tasks.create_task(fetcher.run(self._tasks), name=f"following node {leader}")
        return fetcher

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for leader, fetcher in self._fetchers.items():
                tasks.create_task(fetcher.run(tasks), name=f"following node {leader}")
            try:
                await asyncio.get_running_loop().create_future()  # until the node stops
            finally:
                self._stop()

    def _stop(self) -> None:
        """Stop creating tasks, because the task group is closing although leadership may still change."""
        self._tasks = None
        for fetcher in self._fetchers.values():
            fetcher.stop()


class LeaderFetcher:
    """A fetcher that replicates the partitions which this node follows from one leader."""

    def __init__(
        self,
        node_id: int,
        leader: int,
        calls: PeerCalls,
        clock: Clock,
        broker_epoch: Callable[[], int],
        throttle: ReplicationThrottle,
    ) -> None:
        self._node_id = node_id
        self._leader = leader
        self._calls = calls
        self._clock = clock
        self._broker_epoch = broker_epoch
        self._throttle = throttle
        self._plan = LeaderFetchSession()
        self._has_work = asyncio.Event()
        self._is_fetch_pending = False
        self._tasks: asyncio.TaskGroup | None = None

    def follow(self, replica: Replica) -> None:
        if self._plan.follow(replica):
            self._interrupt_pending_fetch()

    def unfollow(self, key: PartitionId) -> None:
        self._plan.unfollow(key)
        self._interrupt_pending_fetch()

    def _interrupt_pending_fetch(self) -> None:
        """Make the leader answer the pending fetch early, so that the next fetch can include a changed partition."""
        self._has_work.set()
        if self._is_fetch_pending and self._tasks is not None:
            self._is_fetch_pending = False
            self._tasks.create_task(self._wake())

    def stop(self) -> None:
        """Stop creating tasks that send Wake requests to the leader."""
        self._tasks = None

    async def _wake(self) -> None:
        try:
            await WAKE.call(self._calls, self._leader, WakeRequest(self._plan.session_id), FETCH_TIMEOUT_SECONDS)
        except (PeerUnavailable, CallTimedOut, CallRejected):
            return  # the pending fetch fails as well

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        while True:
            if not self._plan.followed:
                self._has_work.clear()
                await self._has_work.wait()
                continue
            try:
                answer = await self._fetch()
            except (PeerUnavailable, CallTimedOut, CallRejected) as error:
                logger.debug("fetch from node %d failed: %s; retrying", self._leader, error)
                self._plan.reset()
                await asyncio.sleep(RECONNECT_SECONDS)
                continue
            if self._plan.on_response(answer):
                await self._process_response(answer)
            del answer  # releases the receive buffer for the next response

    def _open_logs(self) -> None:
        """Open logs for a limited time. The remaining logs are opened before later fetches."""
        deadline = self._clock.monotonic() + OPENING_SECONDS_MAX
        for replica in self._plan.list_replicas_to_open():
            replica.open()
            if self._clock.monotonic() > deadline:
                return

    async def _truncate_lost_records(self, replica: Replica) -> None:
        """Truncate a log at the first lost record, once the replica has left the ISR."""
        if replica.is_in_isr:
            self._plan.pause((replica.topic_id, replica.index), self._clock.monotonic() + ISR_CHECK_SECONDS)
            return
        await replica.syncer.wait_until_idle()
        is_follower = not replica.is_abandoned and replica.isr_state is None and not replica.is_in_isr
        if is_follower and replica.log.missing_start_offset is not None:
            end = replica.log.log_end_offset
            logger.error(
                "%r: offsets %d to %d are lost on this disk; fetching them again from the leader",
                replica,
                replica.log.missing_start_offset,
                end - 1,
            )
            replica.truncate_to(replica.log.missing_start_offset)

    async def _fetch(self) -> FollowerFetchResponse:
        self._open_logs()
        for replica in self._plan.list_replicas_to_truncate():
            await self._truncate_lost_records(replica)
        await _wait_until_synced(self._plan.list_replicas_to_sync())
        for key in self._plan.list_due_partitions(self._clock.monotonic()):
            self._pause_if_throttled(key, self._plan.followed[key].replica)
        request = self._plan.build_request(self._broker_epoch(), self._clock.monotonic())
        self._is_fetch_pending = True
        try:
            return await FETCH.call(self._calls, self._leader, request, FETCH_TIMEOUT_SECONDS)
        finally:
            self._is_fetch_pending = False

    # -- responses ----------------------------------------------------------------------------------------------------

    async def _process_response(self, answer: FollowerFetchResponse) -> None:
        written_replicas: dict[Replica, None] = {}
        bytes_since_yield = 0
        for key, portions in itertools.groupby(answer.chunks, _get_partition_key):
            for chunk in portions:
                followed = self._plan.get_requested_partition(key)
                if followed is None:
                    break
                if followed.replica.log.has_lost_all_records and chunk.error in (
                    ErrorCode.NONE,
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                ):
                    await self._truncate_lost_records(followed.replica)
                    if not self._plan.is_current(key, followed) or followed.replica.isr_state is not None:
                        break
                if chunk.error or chunk.diverging_end >= 0:
                    await self._resolve_divergence(key, followed, chunk)
                elif await self._append_records(key, followed, chunk):
                    written_replicas[followed.replica] = None
                    bytes_since_yield += len(chunk.records)
                else:
                    break  # the following chunks would leave a gap
            if bytes_since_yield > WRITTEN_BYTES_PER_ITERATION:
                await asyncio.sleep(0)
                bytes_since_yield = 0
        await _wait_until_synced(list(written_replicas))

    async def _append_records(self, key: PartitionId, followed: FollowedPartition, chunk: PartitionChunk) -> bool:
        """Append records from the leader; return whether any were written and must be synced."""
        replica = followed.replica
        try:
            if chunk.records and replica.must_restart_at_lower_offset(chunk.records):
                await replica.syncer.wait_until_idle()
                if not self._plan.is_current(key, followed) or replica.isr_state is not None:
                    return False
                # The log start offset is restored by the `update_from_leader` call below.
                replica.restart_at(first_base_offset(chunk.records))
            has_written = bool(chunk.records) and replica.append_from_leader(chunk.records)
        except KafkaError as error:
            level = logging.DEBUG if followed.failures else logging.ERROR
            logger.log(level, "%r: append of records from node %d failed: %s; retrying", replica, self._leader, error)
            self._plan.delay_failed_partition(key, self._clock.monotonic())
            return False
        replica.update_from_leader(chunk.high_watermark, chunk.log_start_offset)
        if has_written or replica.log.log_start_offset != followed.reported_start:
            self._plan.mark_position_changed(key)
        if has_written:
            self._throttle.record_copied_bytes(replica, self._node_id, len(chunk.records))
            self._pause_if_throttled(key, replica)
        return has_written

    def _pause_if_throttled(self, key: PartitionId, replica: Replica) -> None:
        pause = self._throttle.delay(replica, self._node_id)
        if pause > 0:
            self._plan.pause(key, self._clock.monotonic() + pause)

    async def _resolve_divergence(self, key: PartitionId, followed: FollowedPartition, chunk: PartitionChunk) -> None:
        replica = followed.replica
        if chunk.error not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            self._plan.delay_failed_partition(key, self._clock.monotonic())
            logger.debug(
                "%r: fetch from node %d failed: %s; retrying", replica, self._leader, ErrorCode(chunk.error).name
            )
            return
        await replica.syncer.wait_until_idle()
        if not self._plan.is_current(key, followed) or replica.isr_state is not None:
            return
        previous, committed = replica.log.log_end_offset, replica.committed_end_offset
        if chunk.error:
            self._truncate_or_restart(replica, chunk)
        else:
            replica.truncate_to(_find_truncation_offset(replica, chunk))
        end = replica.log.log_end_offset
        level = logging.WARNING if end < committed else logging.INFO
        logger.log(
            level,
            "%r: log truncated from=%d to=%d high_watermark=%d: diverged from the leader",
            replica,
            previous,
            end,
            committed,
        )
        self._plan.record_truncation(key, previous, self._clock.monotonic())
        await asyncio.sleep(0)  # hundreds of partitions may be truncated in a row

    def _truncate_or_restart(self, replica: Replica, chunk: PartitionChunk) -> None:
        """Truncate the log to the leader's log end offset, or restart it empty at the leader's log start offset."""
        if chunk.log_start_offset <= chunk.log_end_offset < replica.log.log_end_offset:
            replica.truncate_to(chunk.log_end_offset)
        else:
            replica.restart_at(chunk.log_start_offset)


def _get_partition_key(chunk: PartitionChunk) -> PartitionId:
    return chunk.topic_id, chunk.partition


async def _wait_until_synced(replicas: list[Replica]) -> None:
    """Wait until the replicas' logs are synced to disk. Their syncs run concurrently since the logs were written."""
    for replica in replicas:
        try:
            if not replica.is_abandoned and not replica.is_fully_durable:
                await replica.syncer.wait_until_synced()
        except KafkaError:
            logger.debug("%r: sync skipped: the partition was deleted", replica)


def _find_truncation_offset(replica: Replica, chunk: PartitionChunk) -> int:
    """Return the end offset of the last leader epoch that both logs may share (Kafka's truncation point)."""
    log = replica.log
    if chunk.diverging_epoch < 0:
        return min(chunk.diverging_end, log.log_end_offset)
    epoch, own_end = log.find_end_offset_for_epoch(chunk.diverging_epoch)
    if epoch == chunk.diverging_epoch:
        return min(chunk.diverging_end, own_end)
    return own_end if epoch >= 0 else min(chunk.diverging_end, log.log_end_offset)
