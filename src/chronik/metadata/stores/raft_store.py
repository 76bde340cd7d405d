"""The store of a node in a cluster: commands go to the Raft leader, from any node, and are answered when they are
applied on this one.

A command that is not known to be done is sent again, as often as its time allows, under the same id: the image
recognises one that it has applied before, and gives its first result. So a retry is never applied twice. What is not
answered in time ends in a typed error that says whether the outcome is known.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec

from chronik.ids import new_id
from chronik.metadata import levels
from chronik.metadata.commands.envelope import (
    COMMAND_BYTES_MAX,
    Command,
    Envelope,
    UnknownCommand,
    decode_command,
    encode_command,
)
from chronik.metadata.delta import Delta, difference
from chronik.metadata.image import Image
from chronik.metadata.image_machine import ImageMachine
from chronik.metadata.records import Result
from chronik.metadata.sessions import LIFE_ENDED, RESULTS_KEPT_MAX, is_over
from chronik.metadata.stores.store import BARRIER_SECONDS, Acks, StoreClosed, Subscriber
from chronik.news import News
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.quorum.driver import RaftDriver
from chronik.quorum.forwarding import Forwarder
from chronik.quorum.outcomes import (
    DriverStopped,
    NotLeader,
    OutcomeUnknown,
    ProposalLost,
    ProposalRefused,
    ReadTimedOut,
    Until,
)
from chronik.raft.membership import NOBODY

logger = logging.getLogger("chronik.metadata")

PROPOSE_SECONDS: Final = 10.0
"""Several elections: a client that waits longer has given up."""

ATTEMPT_SECONDS: Final = 3.0
"""The time of one attempt: a leader that was cut off must not take all of a command's time."""

LEADERLESS_SECONDS: Final = 0.1
"""How soon another attempt is made when nothing is heard of a new leader."""

LEADERLESS_SECONDS_MAX: Final = 1.5
"""How long a read waits for a leader to be elected: the longest election timeout. After that there is no majority."""

COMMANDS_UNDER_WAY_MAX: Final = RESULTS_KEPT_MAX - 64
"""The image keeps this many results of a node; more commands under way could be applied twice."""


class _Pending(msgspec.Struct):
    answer: asyncio.Future[Result]
    limit: asyncio.Timeout
    may_be_done: bool = False
    news: News = msgspec.field(default_factory=News)
    """Tells of a new leader, or of the answer."""

    def end(self, result: Result) -> None:
        if not self.answer.done():
            self.answer.set_result(result)
            self.news.tell()


class RaftStore:
    """See `MetadataStore`. The driver's state machine is `machine`; `attach` gives the store its driver."""

    is_shared: Final = True

    def __init__(self, node_id: int, incarnation: bytes | None = None) -> None:
        self._node_id = node_id
        self._begin_life(incarnation or new_id())
        self._subscribers: list[Subscriber] = []
        self._driver: RaftDriver
        self._forwarder: Forwarder
        self._leader_news = News()
        self._leaderless_since: float | None = None
        self._started = False
        self._closing = False
        self._ends_at = float("inf")
        self.machine: Final = ImageMachine(self._publish, self._applied, self._restored)

    def _begin_life(self, incarnation: bytes) -> None:
        self.incarnation = incarnation
        self._sequence = 0
        self._answered = 0
        """All commands up to this one are answered or given up; some after it may be, too."""
        self._pending: dict[int, _Pending] = {}

    def attach(self, driver: RaftDriver) -> None:
        self._driver = driver
        self._forwarder = Forwarder(driver)

    @property
    def image(self) -> Image:
        return self.machine.image

    async def start(self) -> None:
        """Returns without waiting for a quorum: what this node knows is what its disk holds."""
        self._leaderless_since = asyncio.get_running_loop().time()
        await self._driver.start()
        self._started = True
        self._publish(difference(Image(), self.image))

    def stop_waiting(self, seconds: float) -> None:
        """End each proposal that is not answered within `seconds`, including those made later: the node is stopping."""
        self._ends_at = asyncio.get_running_loop().time() + seconds
        for pending in self._pending.values():
            when = pending.limit.when()
            if not pending.limit.expired() and (when is None or when > self._ends_at):
                pending.limit.reschedule(self._ends_at)

    async def close(self) -> None:
        self._closing = True
        await self._driver.stop()

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)
        if self._started:
            subscriber(difference(Image(), self.image))

    def leader_changed(self) -> None:
        """Lets those who wait for a leader try again."""
        if self._driver.leader != NOBODY:
            self._leaderless_since = None
        elif self._leaderless_since is None:
            self._leaderless_since = asyncio.get_running_loop().time()
        self._leader_news.tell()
        for pending in self._pending.values():
            pending.news.tell()

    async def read_barrier(self, seconds: float = BARRIER_SECONDS) -> None:
        """Waits while a leader is being elected. A node that has known of none for longer than an election takes says
        so at once: its client should ask another node."""
        loop = asyncio.get_running_loop()
        deadline = min(loop.time() + seconds, self._ends_at)
        while True:
            heard = self._leader_news.count
            try:
                index = await self._driver.read_index(max(0.0, deadline - loop.time()))
                return await self._driver.wait_applied(index, max(0.0, deadline - loop.time()))
            except (NotLeader, ReadTimedOut, OutcomeUnknown, ProposalRefused) as error:
                if not isinstance(error, NotLeader) or loop.time() >= min(deadline, self._leaderless_until()):
                    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"No majority confirmed the read: {error}") from error
            except DriverStopped as error:
                raise StoreClosed(str(error)) from error
            await self._leader_news.since(heard, min(LEADERLESS_SECONDS, deadline - loop.time()))

    def position(self, index: int) -> str:
        """Format the log position of a committed entry for a log line: the entry's own term, and its index."""
        term = self._driver.term_at(index)
        return f"term={'compacted' if term is None else term} index={index}"

    def is_durable(self, index: int) -> bool:
        """Whether it is applied here: nothing is, before it is on the disks of a majority."""
        return index <= self.image.applied_index

    async def wait_durable(self, index: int, seconds: float = BARRIER_SECONDS) -> None:
        try:
            await self._driver.wait_applied(index, seconds)
        except OutcomeUnknown as error:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"What is at {index} has not come: {error}") from error
        except DriverStopped as error:
            raise StoreClosed(str(error)) from error

    def _leaderless_until(self) -> float:
        """Returns until when it is worth waiting for a leader."""
        since = self._leaderless_since
        return float("inf") if since is None else since + LEADERLESS_SECONDS_MAX

    # Proposing

    async def propose(
        self, command: Command, timeout: float = PROPOSE_SECONDS, *, acks: Acks = Acks.ALL, only_here: bool = False
    ) -> Result:
        """See `MetadataStore`. With `only_here` the command is not sent to another leader: what a controller decided is
        valid only as long as it leads."""
        if self._closing:
            raise StoreClosed("the metadata store is closing")
        if len(self._pending) >= COMMANDS_UNDER_WAY_MAX:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many metadata changes are under way")
        sequence, data = self._seal(command)
        under_way = self._pending  # another life has others
        loop = asyncio.get_running_loop()
        limit = asyncio.timeout_at(min(loop.time() + timeout, self._ends_at))
        pending = _Pending(loop.create_future(), limit)
        try:
            async with limit:
                under_way[sequence] = pending
                result = await self._until_answered(pending, data, acks, only_here)
        except TimeoutError:
            raise self._not_in_time(pending) from None
        except DriverStopped as error:
            raise StoreClosed(str(error)) from error
        finally:
            under_way.pop(sequence, None)
        if result.code is not ErrorCode.NONE:
            raise KafkaError(result.code, result.message)
        return result

    async def _until_answered(self, pending: _Pending, data: bytes, acks: Acks, only_here: bool) -> Result:
        until = Until.APPLIED if acks is Acks.ALL else Until.ON_LEADERS_DISK
        while not pending.answer.done():
            heard = pending.news.count  # a leader may come forward while it is being told that there is none
            before, pending.may_be_done = pending.may_be_done, True  # while an attempt is under way, nobody knows
            try:
                attempt = self._driver.propose if only_here else self._forwarder.propose
                await attempt(data, ATTEMPT_SECONDS, until)
                if until is Until.ON_LEADERS_DISK:
                    return pending.answer.result() if pending.answer.done() else Result()
                # Applied on this node, so its answer is there, unless the image had dropped it.
                return await pending.answer
            except OutcomeUnknown:
                continue
            except (NotLeader, ProposalLost, ProposalRefused) as error:
                logger.debug("a command is not done yet: %s", error)
                pending.may_be_done = before
                if only_here:
                    raise KafkaError(ErrorCode.NOT_CONTROLLER, str(error)) from error
                await pending.news.since(heard, LEADERLESS_SECONDS)
        return pending.answer.result()

    def _not_in_time(self, pending: _Pending) -> KafkaError:
        if pending.may_be_done:
            return KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The outcome is unknown: no majority answered in time")
        return KafkaError(ErrorCode.NOT_CONTROLLER, "Nothing was changed: the cluster has no leader within reach")

    def _seal(self, command: Command) -> tuple[int, bytes]:
        levels.refuse_above(command, levels.level_of(self.image.features))
        sequence = self._sequence + 1
        # Commands that were given up count as answered: they are not sent again.
        while self._answered < self._sequence and self._answered + 1 not in self._pending:
            self._answered += 1
        try:
            data = encode_command(Envelope(self._node_id, self.incarnation, sequence, self._answered, command))
            decode_command(data)
        except (UnknownCommand, TypeError, ValueError, OverflowError) as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{type(command).__name__}: {error}") from error
        if len(data) > COMMAND_BYTES_MAX:
            message = f"{type(command).__name__} is larger than {COMMAND_BYTES_MAX} bytes"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        self._sequence = sequence
        return sequence, data

    # The machine's side

    def _publish(self, delta: Delta) -> None:
        if delta and self._started:
            for subscriber in self._subscribers:
                subscriber(delta)

    def _applied(self, envelope: Envelope, result: Result) -> None:
        if envelope.node_id != self._node_id or envelope.incarnation != self.incarnation:
            return
        if self._is_over:
            self._live_again()
        else:
            self._answer(envelope.sequence, result)

    def _restored(self) -> None:
        """Looks for results of the commands under way: a snapshot may hold them."""
        session = self.image.session(self._node_id)
        if self._is_over:
            self._live_again()
        elif session is not None and session.incarnation == self.incarnation:
            for sequence in list(self._pending):
                if sequence in session.results:
                    self._answer(sequence, session.results[sequence])

    @property
    def _is_over(self) -> bool:
        return is_over(self.image.session(self._node_id), self.incarnation)

    def _live_again(self) -> None:
        """Begins another life, because a late command of an earlier one passed for the first of a newer one: see
        `sessions`. What is under way may have been applied before that, but will not be any more."""
        logger.warning("node %d: a late command of an earlier life ended this one; begins another", self._node_id)
        ended = self._pending
        self._begin_life(new_id())
        for pending in ended.values():
            pending.end(LIFE_ENDED)

    def _answer(self, sequence: int, result: Result) -> None:
        pending = self._pending.get(sequence)
        if pending is not None:
            pending.end(result)
