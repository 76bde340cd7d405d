"""The follower's side of replication: one fetch under way to every leader that this node follows.

What an answer brings is written and made durable before the next fetch, so that the offset which a follower asks for
is one that it cannot lose. Where the logs differ the leader's holds, and the follower cuts off its own.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import Final

from chronik.broker.continuation import first_offset
from chronik.broker.replica import Replica
from chronik.broker.replicas import Replicas
from chronik.clock import Clock
from chronik.limits import MIB
from chronik.metadata.commands.topics import NO_LEADER
from chronik.peers.calls import CallRefused, CallTimedOut, PeerCalls, PeerUnavailable
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.replication.fetch_plan import FetchPlan, Followed
from chronik.replication.messages import FETCH, WAKE, Key, LeaderAnswer, Portion, Wake
from chronik.replication.throttle import ReplicationThrottle

logger = logging.getLogger("chronik.replication")

ANSWER_SECONDS_MAX: Final = 30.0
"""Time for the largest batch on a slow line. A leader that hangs holds up nobody: soon others lead its partitions."""

OPENING_SECONDS_MAX: Final = 0.02
"""Time for opening logs before one fetch: after a crash each may take some reading, and there may be thousands."""

WRITTEN_BYTES_PER_TURN: Final = 1 * MIB
"""How much is written before others get the loop. Never in the middle of a partition, whose sync would begin before
all of it is written."""

LEAVING_SECONDS: Final = 0.1
"""How soon to look again whether a log that has lost records is out of the ISR, and may be filled."""

RECONNECT_SECONDS: Final = 0.1
"""How soon a leader that cannot be reached is asked again."""


class Following:
    def __init__(
        self,
        node_id: int,
        replicas: Replicas,
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
        self._followed: dict[Key, int] = {}  # the leader of each
        self._tasks: asyncio.TaskGroup | None = None
        replicas.listeners.append(self._changed)

    def _changed(self, replica: Replica) -> None:
        key = (replica.topic_id, replica.index)
        follows = not replica.abandoned and replica.leading is None
        leader = replica.leader if follows and replica.leader != self._node_id else NO_LEADER
        before = self._followed.pop(key, NO_LEADER)
        if before not in (leader, NO_LEADER):
            self._fetchers[before].forget(key)
        if leader != NO_LEADER:
            self._followed[key] = leader
            self._fetcher(leader).follow(replica)

    def _fetcher(self, leader: int) -> LeaderFetcher:
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
        """Is called when the group begins to end, and takes no more tasks. Leaders may still change after that."""
        self._tasks = None
        for fetcher in self._fetchers.values():
            fetcher.stop()


class LeaderFetcher:
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
        self._plan = FetchPlan()
        self._work = asyncio.Event()
        self._is_waiting = False
        self._tasks: asyncio.TaskGroup | None = None

    def follow(self, replica: Replica) -> None:
        if self._plan.follow(replica):
            self._interrupt()

    def forget(self, key: Key) -> None:
        self._plan.forget(key)
        self._interrupt()

    def _interrupt(self) -> None:
        """Wakes the waiting fetch: a new partition need not wait until the leader has something to tell of others."""
        self._work.set()
        if self._is_waiting and self._tasks is not None:
            self._is_waiting = False
            self._tasks.create_task(self._wake())

    def stop(self) -> None:
        """Stops waking the leader."""
        self._tasks = None

    async def _wake(self) -> None:
        try:
            await WAKE.ask(self._calls, self._leader, Wake(self._plan.session_id), ANSWER_SECONDS_MAX)
        except (PeerUnavailable, CallTimedOut, CallRefused):
            return  # then the fetch does not wait there either

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        while True:
            if not self._plan.followed:
                self._work.clear()
                await self._work.wait()
                continue
            try:
                answer = await self._fetch()
            except (PeerUnavailable, CallTimedOut, CallRefused) as error:
                logger.debug("node %d cannot be followed now: %s", self._leader, error)
                self._plan.lost()
                await asyncio.sleep(RECONNECT_SECONDS)
                continue
            if self._plan.answered(answer):
                await self._take(answer)
            del answer  # the next one is received into the same memory, once nobody has a view of it

    def _open_logs(self) -> None:
        """Opens as many as take no longer than the loop may be held up; the others before the next fetch."""
        until = self._clock.monotonic() + OPENING_SECONDS_MAX
        for replica in self._plan.unopened():
            replica.open()
            if self._clock.monotonic() > until:
                return

    async def _cut_where_it_is_missing(self, replica: Replica) -> None:
        """Cuts the log once it has left the ISR: others must not take the rest of a log for the whole."""
        if replica.is_in_isr:
            self._plan.rest((replica.topic_id, replica.index), self._clock.monotonic() + LEAVING_SECONDS)
            return
        await replica.syncs.settled()
        is_follower = not replica.abandoned and replica.leading is None and not replica.is_in_isr
        if is_follower and replica.log.missing_from is not None:
            end = replica.log.log_end_offset
            logger.error(
                "%r: of offsets %d to %d, which are gone from this disk, what the leader has is fetched again",
                replica,
                replica.log.missing_from,
                end - 1,
            )
            replica.truncate_to(replica.log.missing_from)

    async def _fetch(self) -> LeaderAnswer:
        self._open_logs()
        for replica in self._plan.incomplete():
            await self._cut_where_it_is_missing(replica)
        await _make_durable(self._plan.undurable())
        for key in self._plan.rested(self._clock.monotonic()):
            self._rest_if_throttled(key, self._plan.followed[key].replica)
        request = self._plan.request(self._broker_epoch(), self._clock.monotonic())
        self._is_waiting = True
        try:
            return await FETCH.ask(self._calls, self._leader, request, ANSWER_SECONDS_MAX)
        finally:
            self._is_waiting = False

    # -- what the leader says -----------------------------------------------------------------------------------------

    async def _take(self, answer: LeaderAnswer) -> None:
        written: dict[Replica, None] = {}
        bytes_this_turn = 0
        for key, portions in itertools.groupby(answer.portions, _key_of):
            for portion in portions:
                followed = self._plan.answerable(key)
                if followed is None:
                    break
                if followed.replica.log.is_lost and portion.error in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
                    await self._cut_where_it_is_missing(followed.replica)
                    if not self._plan.is_current(key, followed) or followed.replica.leading is not None:
                        break
                if portion.error or portion.diverging_end >= 0:
                    await self._mend(key, followed, portion)
                elif await self._append(key, followed, portion):
                    written[followed.replica] = None
                    bytes_this_turn += len(portion.records)
                else:
                    break  # what comes after it could not continue the log
            if bytes_this_turn > WRITTEN_BYTES_PER_TURN:
                await asyncio.sleep(0)
                bytes_this_turn = 0
        await _make_durable(list(written))

    async def _append(self, key: Key, followed: Followed, portion: Portion) -> bool:
        """Returns whether there is something to make durable."""
        replica = followed.replica
        try:
            if portion.records and replica.has_to_begin_earlier(portion.records):
                await replica.syncs.settled()
                if not self._plan.is_current(key, followed) or replica.leading is not None:
                    return False
                replica.restart_at(first_offset(portion.records))  # the start comes back with what is learnt below
            has_written = bool(portion.records) and replica.append_from_leader(portion.records)
        except KafkaError as error:
            level = logging.DEBUG if followed.failures else logging.ERROR
            logger.log(level, "%r cannot take what node %d sent, and will ask again: %s", replica, self._leader, error)
            self._plan.failed(key, self._clock.monotonic())
            return False
        replica.learn(portion.high_watermark, portion.log_start_offset)
        if has_written or replica.log.log_start_offset != followed.told_start:
            self._plan.changed(key)
        if has_written:
            self._throttle.copied(replica, self._node_id, len(portion.records))
            self._rest_if_throttled(key, replica)
        return has_written

    def _rest_if_throttled(self, key: Key, replica: Replica) -> None:
        pause = self._throttle.delay(replica, self._node_id)
        if pause > 0:
            self._plan.rest(key, self._clock.monotonic() + pause)

    async def _mend(self, key: Key, followed: Followed, portion: Portion) -> None:
        replica = followed.replica
        if portion.error not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            self._plan.failed(key, self._clock.monotonic())
            logger.debug("%r: node %d answers %s", replica, self._leader, ErrorCode(portion.error).name)
            return
        await replica.syncs.settled()
        if not self._plan.is_current(key, followed) or replica.leading is not None:
            return
        before, committed = replica.log.log_end_offset, replica.committed_end
        if portion.error:
            self._start_over(replica, portion)
        else:
            replica.truncate_to(_end_of_what_is_shared(replica, portion))
        end = replica.log.log_end_offset
        level = logging.WARNING if end < committed else logging.INFO
        logger.log(
            level, "%r is cut from %d to %d, as its leader has it (committed: %d)", replica, before, end, committed
        )
        self._plan.cut(key, before, self._clock.monotonic())
        await asyncio.sleep(0)  # it waited for the disk, and there may be hundreds to cut

    def _start_over(self, replica: Replica, portion: Portion) -> None:
        """Cuts the log where the leader's ends, or begins again, empty, where the leader's begins."""
        if portion.log_start_offset <= portion.log_end_offset < replica.log.log_end_offset:
            replica.truncate_to(portion.log_end_offset)
        else:
            replica.restart_at(portion.log_start_offset)


def _key_of(portion: Portion) -> Key:
    return portion.topic_id, portion.partition


async def _make_durable(replicas: list[Replica]) -> None:
    """Waits for the syncs, which run side by side already: each was requested when the log was written."""
    for replica in replicas:
        try:
            if not replica.abandoned and not replica.is_all_durable:
                await replica.syncs.all_synced()
        except KafkaError:
            logger.debug("%r is gone", replica)


def _end_of_what_is_shared(replica: Replica, portion: Portion) -> int:
    """Returns where the last epoch that both logs may have ends: what comes after it the leader does not have."""
    log = replica.log
    if portion.diverging_epoch < 0:
        return min(portion.diverging_end, log.log_end_offset)
    epoch, own_end = log.epoch_end_offset(portion.diverging_epoch)
    if epoch == portion.diverging_epoch:
        return min(portion.diverging_end, own_end)
    return own_end if epoch >= 0 else min(portion.diverging_end, log.log_end_offset)
