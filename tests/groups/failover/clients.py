"""Simulated consumers: they find their coordinator, join, sync, send heartbeats, commit their positions and rejoin.

Some are static, some crash, and some continue after they have been replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from chronik.groups.requests import (
    JoinRequest,
    JoinResult,
    LeaveRequest,
    LeavingMember,
    SyncRequest,
)
from chronik.metadata.commands.groups import OffsetToCommit
from chronik.protocol.errors import ErrorCode

from .world import NODES, PARTITIONS, TOPIC, FailoverNode, FailoverWorld, NodeUnavailable

SESSION_MS: Final = 6_000
REBALANCE_MS: Final = 10_000
JOIN_SECONDS: Final = 30.0
PROCESS_START_SECONDS: Final = 0.1

LOOK_ELSEWHERE: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
BEGIN_ANEW: Final = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.GROUP_ID_NOT_FOUND,
)


class RejoinRequired(Exception):
    """The member's generation has ended and it must rejoin."""


class InstanceFenced(Exception):
    """Another process uses the same group instance id."""


class FailoverConsumer:
    """A simulated consumer process."""

    def __init__(self, world: FailoverWorld, group: str, name: str, instance: str | None) -> None:
        self._world = world
        self._random = world.random
        self.group = group
        self.name = name
        self.instance = instance
        self.is_replaced = False
        """Whether another process has been started in its place. The client continues until it is fenced."""
        self._coordinator: FailoverNode | None = None
        self._reset_membership()

    def _reset_membership(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.positions: dict[int, int] | None = None

    # --- lifecycle ---

    async def run(self) -> None:
        await asyncio.sleep(PROCESS_START_SECONDS)
        while True:
            try:
                await self._run_membership()
            except InstanceFenced:
                return  # a real consumer raises an error to its application
            except (NodeUnavailable, RejoinRequired):
                if self.is_replaced:
                    return
                await asyncio.sleep(self._random.uniform(0.05, 0.3))

    async def _run_membership(self) -> None:
        self.positions = None
        joined = await self._ask(self._join, JOIN_SECONDS)
        self.member_id, self.generation = joined.member_id, joined.generation
        assignment = await self._ask(lambda node: self._sync(node, joined), JOIN_SECONDS)
        self._world.check_delivered_assignment(self.group, self.generation, self.instance or self.member_id, assignment)
        self.positions = await self._ask(lambda node: self._fetch(node, assignment))
        while True:
            await asyncio.sleep(self._random.uniform(0.3, 1.0))
            if self._world.trouble and self._random.random() < 0.01:
                await self._ask(self._leave)
            elif self._random.random() < 0.5:
                await self._ask(self._send_heartbeat)
            else:
                await self.commit()

    async def commit(self) -> None:
        assert self.positions is not None
        # The next position is higher whether or not the commit succeeds, as for a real consumer.
        self.positions = {partition: offset + 1 for partition, offset in self.positions.items()}
        if self.positions:
            await self._ask(self._commit)

    # --- coordinator lookup ---

    async def _ask(self, request: Callable[[FailoverNode], Awaitable[Any]], seconds: float = 5.0) -> Any:
        """Send a request until a response is not a redirect.

        Raises:
            Gone, Rejoin, Fenced: As the responses demand.
        """
        while True:
            node = self._coordinator or self._find()
            if node is None:
                await asyncio.sleep(0.2)
                continue
            self._coordinator = node
            try:
                answer = await node.send_request(request, seconds)
            except NodeUnavailable:
                self._coordinator = None
                raise
            if not isinstance(answer, ErrorCode):
                return answer
            if answer is ErrorCode.NONE:
                return None
            await self._handle_error(answer)

    def _find(self) -> FailoverNode | None:
        """Return the coordinator according to a random node, whose metadata may be outdated."""
        alive = [node for node in self._world.nodes.values() if node.is_alive and not node.is_fenced()]
        if not alive:
            return None
        found = self._random.choice(alive).coordinators.coordinator_of(self.group)
        return self._world.nodes[found] if found in NODES and self._world.nodes[found].is_alive else None

    async def _handle_error(self, error: ErrorCode) -> None:
        if error in LOOK_ELSEWHERE:
            self._coordinator = None
            await asyncio.sleep(0.1)
        elif error is ErrorCode.FENCED_INSTANCE_ID:
            self.positions = None
            raise InstanceFenced
        else:
            if error in BEGIN_ANEW:
                self._reset_membership()
            else:
                assert error in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED), error
            self.positions = None
            raise RejoinRequired

    # --- requests: each returns its result or an error code ---

    async def _join(self, node: FailoverNode) -> JoinResult | ErrorCode:
        protocols = (("range", b"subscription"),)
        names = (self.group, self.member_id, self.instance, self.name, "/host")
        request = JoinRequest(*names, SESSION_MS, REBALANCE_MS, "consumer", protocols)
        joined = await node.groups.join(request)
        if joined.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
        return joined if joined.error is ErrorCode.NONE else joined.error

    async def _sync(self, node: FailoverNode, joined: JoinResult) -> bytes | ErrorCode:
        assignments: dict[str, bytes] = {}
        if joined.leader == joined.member_id and not joined.skip_assignment:
            members = [member.member_id for member in joined.members]
            for number, member_id in enumerate(members):
                assignments[member_id] = bytes(PARTITIONS[number :: len(members)])
        given = tuple(assignments.items())
        request = SyncRequest(self.group, self.generation, self.member_id, self.instance, assignments=given)
        synced = await node.groups.sync(request)
        return synced.assignment if synced.error is ErrorCode.NONE else synced.error

    async def _fetch(self, node: FailoverNode, assignment: bytes) -> dict[int, int] | ErrorCode:
        """Fetch the committed offsets; valid only for a member that knows its generation."""
        error = await node.groups.heartbeat(*self._heartbeat())
        if error is not ErrorCode.NONE:
            return error
        tenure = node.groups._host.check_ownership(self.group)
        if isinstance(tenure, ErrorCode):
            return tenure
        committed = {partition: node.image.offset(self.group, TOPIC, partition) for partition in assignment}
        return {partition: 0 if at is None else at.offset for partition, at in committed.items()}

    def _heartbeat(self) -> tuple[str, int, str, str | None]:
        return self.group, self.generation, self.member_id, self.instance

    async def _send_heartbeat(self, node: FailoverNode) -> ErrorCode:
        return await node.groups.heartbeat(*self._heartbeat())

    async def _commit(self, node: FailoverNode) -> ErrorCode:
        assert self.positions is not None
        metadata_note = f"{self.generation} {self.member_id}"
        positions = dict(self.positions)
        offsets = tuple(OffsetToCommit(TOPIC, index, offset, -1, metadata_note) for index, offset in positions.items())
        error, *_ = await node.groups.offsets.commit(
            self.group, offsets, self.generation, self.member_id, self.instance
        )
        if error is ErrorCode.NONE:
            for partition, offset in positions.items():
                self._world.check_acknowledged(self.group, partition, offset)
        return error

    async def _leave(self, node: FailoverNode) -> ErrorCode:
        leaving = LeaveRequest(self.group, (LeavingMember(self.member_id, self.instance),))
        result = await node.groups.leave(leaving)
        return ErrorCode.UNKNOWN_MEMBER_ID if result.error is ErrorCode.NONE else result.error
