"""The metadata store of a cluster node: forwards commands to the Raft leader and waits until they are applied locally.

A command with an unknown outcome is retried under the same id until its timeout. The image recognizes a command that it
has applied before and returns its first result, so a retry is never applied twice. A command that is not acknowledged
in time fails with an error that says whether the outcome is known.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec

from chronik.ids import generate_id
from chronik.metadata import levels
from chronik.metadata.commands.envelope import (
    COMMAND_BYTES_MAX,
    Command,
    Envelope,
    UnknownCommandError,
    decode_command,
    encode_command,
)
from chronik.metadata.delta import Delta, diff_images
from chronik.metadata.image import Image
from chronik.metadata.image_state_machine import ImageStateMachine
from chronik.metadata.records import ApplyResult
from chronik.metadata.sessions import INCARNATION_ENDED, RESULTS_KEPT_MAX, has_incarnation_ended
from chronik.metadata.stores.store import BARRIER_SECONDS, Acks, DeltaSubscriber, StoreClosedError
from chronik.notifier import Notifier
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.quorum.driver import RaftDriver
from chronik.quorum.forwarder import ProposalForwarder
from chronik.quorum.outcomes import (
    CompletionPoint,
    DriverStopped,
    NotLeader,
    OutcomeUnknown,
    ProposalLost,
    ProposalRejected,
    ReadTimedOut,
)
from chronik.raft.membership import NO_NODE

logger = logging.getLogger("chronik.metadata")

PROPOSE_SECONDS: Final = 10.0
"""The default timeout of a proposal in seconds, long enough for several elections."""

ATTEMPT_SECONDS: Final = 3.0
"""The timeout of a single attempt to propose a command, in seconds. A proposal may take several attempts."""

LEADERLESS_SECONDS: Final = 0.1
"""The delay in seconds before a read or proposal is retried while the Raft cluster has no leader."""

LEADERLESS_SECONDS_MAX: Final = 1.5
"""The maximum time in seconds that a read waits for the election of a Raft leader."""

PENDING_PROPOSALS_MAX: Final = RESULTS_KEPT_MAX - 64
"""The maximum number of a node's pending proposals, below the number of results kept for detecting retries."""


class _PendingProposal(msgspec.Struct):
    """A proposed command that is not acknowledged yet, with the future for its result."""

    answer: asyncio.Future[ApplyResult]
    limit: asyncio.Timeout
    may_be_done: bool = False
    news: Notifier = msgspec.field(default_factory=Notifier)
    """The notifier that wakes the proposal when a leader is elected or the result arrives."""

    def end(self, result: ApplyResult) -> None:
        """Complete the proposal with a result."""
        if not self.answer.done():
            self.answer.set_result(result)
            self.news.notify()


class RaftStore:
    """The metadata store of a cluster node (see `MetadataStore`).

    `machine` is the state machine of the Raft driver; `attach` sets the driver.
    """

    is_shared: Final = True

    def __init__(self, node_id: int, incarnation: bytes | None = None) -> None:
        self._node_id = node_id
        self._start_incarnation(incarnation or generate_id())
        self._subscribers: list[DeltaSubscriber] = []
        self._driver: RaftDriver
        self._forwarder: ProposalForwarder
        self._leader_news = Notifier()
        self._leaderless_since: float | None = None
        self._started = False
        self._closing = False
        self._deadline = float("inf")
        self.machine: Final = ImageStateMachine(self._publish, self._on_command_applied, self._on_snapshot_restored)

    def _start_incarnation(self, incarnation: bytes) -> None:
        """Start a new command session of this node under a new incarnation id."""
        self.incarnation = incarnation
        self._sequence = 0
        self._answered = 0
        """The sequence number up to which the results of all commands have been returned or abandoned."""
        self._pending: dict[int, _PendingProposal] = {}

    def attach(self, driver: RaftDriver) -> None:
        """Set the Raft driver through which commands are proposed."""
        self._driver = driver
        self._forwarder = ProposalForwarder(driver)

    @property
    def image(self) -> Image:
        return self.machine.image

    async def start(self) -> None:
        """Start the driver without waiting for a quorum. The image contains the state on the local disk."""
        self._leaderless_since = asyncio.get_running_loop().time()
        await self._driver.start()
        self._started = True
        self._publish(diff_images(Image(), self.image))

    def limit_proposals(self, seconds: float) -> None:
        """Limit all pending and future proposals to `seconds` from now, because the node is shutting down."""
        self._deadline = asyncio.get_running_loop().time() + seconds
        for pending in self._pending.values():
            when = pending.limit.when()
            if not pending.limit.expired() and (when is None or when > self._deadline):
                pending.limit.reschedule(self._deadline)

    async def close(self) -> None:
        self._closing = True
        await self._driver.stop()

    def subscribe(self, subscriber: DeltaSubscriber) -> None:
        self._subscribers.append(subscriber)
        if self._started:
            subscriber(diff_images(Image(), self.image))

    def notify_leader_change(self) -> None:
        """Wake the proposals and reads that wait for a leader."""
        if self._driver.leader != NO_NODE:
            self._leaderless_since = None
        elif self._leaderless_since is None:
            self._leaderless_since = asyncio.get_running_loop().time()
        self._leader_news.notify()
        for pending in self._pending.values():
            pending.news.notify()

    async def read_barrier(self, seconds: float = BARRIER_SECONDS) -> None:
        """Wait until the local image contains every command acknowledged before the call (Raft's ReadIndex).

        Waits during a leader election. If no leader has been known for longer than an election takes, raises
        immediately, so that the client can try another node.
        """
        loop = asyncio.get_running_loop()
        deadline = min(loop.time() + seconds, self._deadline)
        while True:
            leader_changes = self._leader_news.generation
            try:
                index = await self._driver.read_index(max(0.0, deadline - loop.time()))
                return await self._driver.wait_applied(index, max(0.0, deadline - loop.time()))
            except (NotLeader, ReadTimedOut, OutcomeUnknown, ProposalRejected) as error:
                if not isinstance(error, NotLeader) or loop.time() >= min(deadline, self._get_leader_wait_deadline()):
                    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"No majority confirmed the read: {error}") from error
            except DriverStopped as error:
                raise StoreClosedError(str(error)) from error
            await self._leader_news.wait(leader_changes, min(LEADERLESS_SECONDS, deadline - loop.time()))

    def format_position(self, index: int) -> str:
        """Format the log position of a committed entry for a log line: the term and index of the entry."""
        term = self._driver.term_at(index)
        return f"term={'compacted' if term is None else term} index={index}"

    def is_durable(self, index: int) -> bool:
        """Return whether the command at `index` is applied here, which implies that it is durable on a majority."""
        return index <= self.image.applied_index

    async def wait_durable(self, index: int, seconds: float = BARRIER_SECONDS) -> None:
        """Wait until the command at `index` is applied on this node."""
        try:
            await self._driver.wait_applied(index, seconds)
        except OutcomeUnknown as error:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"The metadata command at index {index} was not applied in time: {error}"
            ) from error
        except DriverStopped as error:
            raise StoreClosedError(str(error)) from error

    def _get_leader_wait_deadline(self) -> float:
        """Return the time until which reads wait for the election of a Raft leader."""
        since = self._leaderless_since
        return float("inf") if since is None else since + LEADERLESS_SECONDS_MAX

    # --- proposals ---

    async def propose(
        self, command: Command, timeout: float = PROPOSE_SECONDS, *, acks: Acks = Acks.ALL, local_only: bool = False
    ) -> ApplyResult:
        """Propose a command and wait for its result (see `MetadataStore`).

        With `local_only`, the command is not forwarded to another leader: a controller's decision is valid only while
        it leads.
        """
        if self._closing:
            raise StoreClosedError("the metadata store is closing")
        if len(self._pending) >= PENDING_PROPOSALS_MAX:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many metadata commands are pending")
        sequence, data = self._encode_proposal(command)
        under_way = self._pending  # another incarnation has its own dict
        loop = asyncio.get_running_loop()
        limit = asyncio.timeout_at(min(loop.time() + timeout, self._deadline))
        pending = _PendingProposal(loop.create_future(), limit)
        try:
            async with limit:
                under_way[sequence] = pending
                result = await self._propose_until_done(pending, data, acks, local_only)
        except TimeoutError:
            raise self._build_timeout_error(pending) from None
        except DriverStopped as error:
            raise StoreClosedError(str(error)) from error
        finally:
            under_way.pop(sequence, None)
        if result.code is not ErrorCode.NONE:
            raise KafkaError(result.code, result.message)
        return result

    async def _propose_until_done(
        self, pending: _PendingProposal, data: bytes, acks: Acks, local_only: bool
    ) -> ApplyResult:
        """Propose the command, and retry after every failed attempt until the outcome is known."""
        until = CompletionPoint.APPLIED if acks is Acks.ALL else CompletionPoint.WRITTEN_BY_LEADER
        while not pending.answer.done():
            leader_changes = pending.news.generation  # a leader may be elected during the attempt
            before, pending.may_be_done = pending.may_be_done, True  # the outcome is unknown during an attempt
            try:
                attempt = self._driver.propose if local_only else self._forwarder.propose
                await attempt(data, ATTEMPT_SECONDS, until)
                if until is CompletionPoint.WRITTEN_BY_LEADER:
                    return pending.answer.result() if pending.answer.done() else ApplyResult()
                # The command is applied on this node, so its result is set unless the image has dropped it.
                return await pending.answer
            except OutcomeUnknown:
                continue
            except (NotLeader, ProposalLost, ProposalRejected) as error:
                logger.debug("metadata command not accepted by the leader: %s; retrying", error)
                pending.may_be_done = before
                if local_only:
                    raise KafkaError(ErrorCode.NOT_CONTROLLER, str(error)) from error
                await pending.news.wait(leader_changes, LEADERLESS_SECONDS)
        return pending.answer.result()

    def _build_timeout_error(self, pending: _PendingProposal) -> KafkaError:
        """Return the error for a proposal that has timed out; it tells whether the command may have been applied."""
        if pending.may_be_done:
            return KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The outcome is unknown: no majority answered in time")
        return KafkaError(ErrorCode.NOT_CONTROLLER, "Nothing was changed: no controller is reachable")

    def _encode_proposal(self, command: Command) -> tuple[int, bytes]:
        levels.check_command_level(command, levels.get_cluster_level(self.image.features))
        sequence = self._sequence + 1
        # Abandoned commands count as completed: they are not retried.
        while self._answered < self._sequence and self._answered + 1 not in self._pending:
            self._answered += 1
        try:
            data = encode_command(Envelope(self._node_id, self.incarnation, sequence, self._answered, command))
            decode_command(data)
        except (UnknownCommandError, TypeError, ValueError, OverflowError) as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{type(command).__name__}: {error}") from error
        if len(data) > COMMAND_BYTES_MAX:
            message = f"{type(command).__name__} is larger than {COMMAND_BYTES_MAX} bytes"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        self._sequence = sequence
        return sequence, data

    # --- callbacks of the state machine ---

    def _publish(self, delta: Delta) -> None:
        if delta and self._started:
            for subscriber in self._subscribers:
                subscriber(delta)

    def _on_command_applied(self, envelope: Envelope, result: ApplyResult) -> None:
        if envelope.node_id != self._node_id or envelope.incarnation != self.incarnation:
            return
        if self._has_incarnation_ended:
            self._restart_incarnation()
        else:
            self._complete_proposal(envelope.sequence, result)

    def _on_snapshot_restored(self) -> None:
        """Complete the pending proposals whose results are contained in a snapshot that was just installed."""
        session = self.image.session(self._node_id)
        if self._has_incarnation_ended:
            self._restart_incarnation()
        elif session is not None and session.incarnation == self.incarnation:
            for sequence in list(self._pending):
                if sequence in session.results:
                    self._complete_proposal(sequence, session.results[sequence])

    @property
    def _has_incarnation_ended(self) -> bool:
        """Return whether another incarnation of this node has ended the current command session."""
        return has_incarnation_ended(self.image.session(self._node_id), self.incarnation)

    def _restart_incarnation(self) -> None:
        """Start a new command session after a delayed command of an earlier incarnation has ended the current one.

        Pending commands may have been applied before, but will not be applied any more.
        """
        logger.warning(
            "node %d: metadata session ended by a delayed command of an earlier incarnation; starting a new session",
            self._node_id,
        )
        ended = self._pending
        self._start_incarnation(generate_id())
        for pending in ended.values():
            pending.end(INCARNATION_ENDED)

    def _complete_proposal(self, sequence: int, result: ApplyResult) -> None:
        pending = self._pending.get(sequence)
        if pending is not None:
            pending.end(result)
