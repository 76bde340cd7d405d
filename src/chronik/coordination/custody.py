"""The groups of a node at work: events go in, and what the groups want is done in their order; their alarms ring here.

One event loop, no locks: a group changes only between two awaits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from chronik.clock import Clock
from chronik.coordination.proposals import Proposals
from chronik.errors import invariant
from chronik.groups import events
from chronik.groups.classic.machine import ClassicGroup
from chronik.groups.classic.transitions import GroupState
from chronik.groups.config import GROUPS_BYTES_MAX, SMALL_BYTES_MAX
from chronik.groups.requests import JoinResult, LeaveResult, SyncResult
from chronik.metadata.commands import Command, DeleteConsumerGroup, UpdateConsumerGroup
from chronik.protocol.errors import ErrorCode

log = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT", JoinResult, SyncResult, LeaveResult, ErrorCode)

Question = (
    events.JoinAsked
    | events.SyncAsked
    | events.HeartbeatAsked
    | events.LeaveAsked
    | events.CommitAsked
    | events.DeletionAsked
)


class _Alarm:
    __slots__ = ("at_ms", "timer")

    def __init__(self, at_ms: int, timer: asyncio.TimerHandle) -> None:
        self.at_ms = at_ms
        self.timer = timer


class GroupHost:
    def __init__(
        self,
        clock: Clock,
        proposals: Proposals,
        is_held: Callable[[ClassicGroup], bool],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """`is_held` says whether a group's term is still running. It is asked whenever a group would act by itself:
        what members ask for is refused before it comes here."""
        self._clock = clock
        self._proposals = proposals
        self._is_held = is_held
        self._on_fatal = on_fatal
        self._groups: dict[str, ClassicGroup] = {}
        self._unsettled: Counter[tuple[str, int]] = Counter()
        """What groups have on its way to the store, by group and term; also groups that were let go of since."""
        self._weights: dict[ClassicGroup, int] = {}
        self._bytes = 0
        """Of all that members brought, as the groups count it."""
        self._alarms: dict[ClassicGroup, _Alarm] = {}
        self._waiters: dict[int, asyncio.Future[events.Answer]] = {}
        self._last_waiter = 0

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[ClassicGroup]:
        """A copy: groups come and go while it is walked over."""
        return iter(list(self._groups.values()))

    def get(self, group_id: str) -> ClassicGroup | None:
        return self._groups.get(group_id)

    def is_settling(self, group_id: str, epoch: int) -> bool:
        """Whether a group that was let go of in this very term has something on its way to the store: until that is
        decided, the image does not tell how the group stands. What was sent in earlier terms is refused anyway."""
        return group_id not in self._groups and (group_id, epoch) in self._unsettled

    def add(self, group: ClassicGroup) -> ClassicGroup:
        invariant(group.group_id not in self._groups, f"group {group.group_id!r} is hosted already")
        self._groups[group.group_id] = group
        self._weigh(group)
        self._set_alarm(group)
        return group

    def has_room(self, growth: int) -> bool:
        """Whether members may bring so much more."""
        bytes_max = GROUPS_BYTES_MAX * (2 if growth <= SMALL_BYTES_MAX else 1)
        return growth <= 0 or self._bytes + growth <= bytes_max

    def _weigh(self, group: ClassicGroup) -> None:
        """Members of a group that was let go of are its next coordinator's to count."""
        weight = group.memory_bytes if self._groups.get(group.group_id) is group else 0
        self._bytes += weight - self._weights.get(group, 0)
        if weight:
            self._weights[group] = weight
        else:
            self._weights.pop(group, None)

    def now_ms(self) -> int:
        """For events: never goes back, and says nothing about the time of day."""
        return int(self._clock.monotonic() * 1000)

    def new_waiter(self) -> int:
        self._last_waiter += 1
        return self._last_waiter

    async def ask(self, group: ClassicGroup, question: Question, kind: type[AnswerT]) -> AnswerT:
        """A caller that goes away just stops waiting: the group finds out when the member's session ends."""
        future: asyncio.Future[events.Answer] = asyncio.get_running_loop().create_future()
        self._waiters[question.waiter] = future
        try:
            self.feed(group, question)
            answer = await future
        finally:
            del self._waiters[question.waiter]
        if not isinstance(answer, kind):
            raise TypeError(f"{type(question).__name__} was answered with {answer!r}")
        return answer

    def feed(self, group: ClassicGroup, event: events.Event) -> None:
        for instruction in group.handle(event):
            self._carry_out(group, instruction)
        self._weigh(group)
        self._set_alarm(group)

    def _carry_out(self, group: ClassicGroup, instruction: events.Instruction) -> None:
        match instruction:
            case events.Store():
                self._submit(group, instruction.ticket, self._as_command(instruction.group, group.epoch))
            case events.StoreDeletion():
                self._submit(group, instruction.ticket, DeleteConsumerGroup(group.group_id, group.epoch))
            case events.Reply():
                waiter = self._waiters.get(instruction.waiter)
                if waiter is not None and not waiter.done():
                    waiter.set_result(instruction.answer)
            case events.Forget():
                if self._groups.get(group.group_id) is group:
                    del self._groups[group.group_id]

    def _submit(self, group: ClassicGroup, ticket: int, command: Command) -> None:
        self._unsettled[group.group_id, group.epoch] += 1
        self._proposals.submit(command, partial(self._stored, group, ticket))

    def _as_command(self, group: events.StoredGroup, epoch: int) -> UpdateConsumerGroup:
        return UpdateConsumerGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            generation=group.generation,
            protocol_name=group.protocol_name,
            leader=group.leader,
            state=GroupState.STABLE.value if group.members else GroupState.EMPTY.value,
            members=group.members,
            time_ms=self._clock.now_ms(),
            coordinator_epoch=epoch,
        )

    def _stored(self, group: ClassicGroup, ticket: int, error: ErrorCode | None) -> None:
        self._settled(group)
        if error is None:
            self.feed(group, events.Stored(self.now_ms(), ticket))
        elif not self._is_held(group):
            self.feed(group, events.TakenOver(self.now_ms()))
        else:
            log.warning("group %r could not be stored: %s", group.group_id, error.name)
            self.feed(group, events.StoreFailed(self.now_ms(), ticket, error))

    def _settled(self, group: ClassicGroup) -> None:
        key = (group.group_id, group.epoch)
        self._unsettled[key] -= 1
        if not self._unsettled[key]:
            del self._unsettled[key]

    def _set_alarm(self, group: ClassicGroup) -> None:
        """Deadlines mostly move away, so an alarm that rings too early costs less than one that is always moved."""
        wake_at_ms = group.wake_at_ms
        alarm = self._alarms.get(group)
        if alarm is not None:
            if wake_at_ms is not None and alarm.at_ms <= wake_at_ms:
                return
            alarm.timer.cancel()
            del self._alarms[group]
        if wake_at_ms is not None:
            delay_seconds = max(wake_at_ms - self.now_ms(), 0) / 1000
            timer = asyncio.get_running_loop().call_later(delay_seconds, self._ring, group)
            self._alarms[group] = _Alarm(wake_at_ms, timer)

    def _ring(self, group: ClassicGroup) -> None:
        del self._alarms[group]
        try:
            if self._is_held(group):
                self.feed(group, events.TimePassed(self.now_ms()))
            else:
                self.feed(group, events.TakenOver(self.now_ms()))
        except Exception as bug:  # nobody waits for a timer: unless it is passed on, it would only be logged
            self._on_fatal(bug)
