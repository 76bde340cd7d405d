"""The group coordinator of a node, called by the handlers of Kafka's group and offset APIs.

The group state machines (`group_machine`) decide on membership. Committed offsets exist only in the metadata image.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence

from chronik.clock import Clock
from chronik.coordination.coordinator import StateMachineCoordinator
from chronik.coordination.host import STANDALONE_TERM, CoordinatorTerm
from chronik.coordination.proposals import CoordinatorStore
from chronik.groups import requests
from chronik.groups.classic.machine import ClassicGroup
from chronik.groups.classic.members import CONSUMER_PROTOCOL_TYPE
from chronik.groups.classic.rebalance import estimate_join_request_size, find_join_request_error
from chronik.groups.classic.transitions import GroupState
from chronik.groups.config import GROUPS_BYTES_MAX, SMALL_MEMBER_BYTES_MAX, GroupConfig
from chronik.groups.group_machine import GroupMachine, GroupMachineKind, is_group_limit_reached
from chronik.groups.offsets import OffsetManager
from chronik.groups.requests import (
    UNKNOWN_MEMBER_ID,
    DescribedGroup,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    LeaveResult,
    LeftMember,
    ListedGroup,
    SyncRequest,
    SyncResult,
    TopicPartition,
)
from chronik.limits import GROUP_ID_CHARACTERS_MAX
from chronik.metadata.commands.groups import DeleteOffsets, OffsetKey
from chronik.metadata.names import OFFSETS_TOPIC
from chronik.metadata.stores.store import Acks
from chronik.protocol.errors import ErrorCode


class GroupCoordinator(StateMachineCoordinator[GroupMachine]):
    """The group coordinator of a node."""

    def __init__(
        self,
        store: CoordinatorStore,
        clock: Clock,
        config: GroupConfig | None = None,
        on_fatal: Callable[[BaseException], None] | None = None,
        owns: Callable[[str], CoordinatorTerm | None] = lambda group_id: STANDALONE_TERM,
        offset_acks: Acks = Acks.ALL,
        is_fenced: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._config = config or GroupConfig()
        self._groups = GroupMachineKind(store, self._config)
        super().__init__(self._groups, OFFSETS_TOPIC, store, clock, owns, is_fenced, on_fatal)
        self.offsets = OffsetManager(store, clock, self._config, self._host, self._proposals, offset_acks)

    def jobs(self) -> list[Coroutine[None, None, None]]:
        return [*super().jobs(), self.offsets.expire_periodically()]

    # --- membership ---

    async def join(self, request: JoinRequest) -> JoinResult:
        """Handle a JoinGroup request, which creates the group if it does not exist."""
        term = self._host.check_ownership(request.group_id)
        if isinstance(term, ErrorCode):
            return JoinResult(term, request.member_id)
        error_code = find_join_request_error(request, self._config)
        if error_code is not None:
            return JoinResult(error_code, request.member_id)
        group = self._host.get(request.group_id, term)
        if group is None and len(request.group_id) > GROUP_ID_CHARACTERS_MAX:
            return JoinResult(ErrorCode.INVALID_GROUP_ID, request.member_id)
        if group is None and request.member_id != UNKNOWN_MEMBER_ID:
            return JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
        growth = estimate_join_request_size(request) if group is None else group.compute_join_growth_bytes(request)
        if not self._has_capacity(growth) or (group is None and is_group_limit_reached(self._host, self._store.image)):
            return JoinResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, request.member_id)
        if group is None:
            group = ClassicGroup(request.group_id, self._config, term.epoch)
            self._host.add(group)
        return await self._host.request(group, JoinResult, requests.JoinRequested, request, str(uuid.uuid4()))

    async def sync(self, request: SyncRequest) -> SyncResult:
        """Handle a SyncGroup request."""
        group = self._find(request.group_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if isinstance(group, ErrorCode):
            # As in Kafka: some clients cannot handle "loading" in a SyncGroup response. They rejoin and wait there.
            is_loading = group is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return SyncResult(ErrorCode.REBALANCE_IN_PROGRESS if is_loading else group)
        if not self._has_capacity(group.compute_sync_growth_bytes(request)):
            return SyncResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return await self._host.request(group, SyncResult, requests.SyncRequested, request)

    async def heartbeat(
        self, group_id: str, generation: int, member_id: str, group_instance_id: str | None = None
    ) -> ErrorCode:
        """Handle a Heartbeat request."""
        group = self._find(group_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if isinstance(group, ErrorCode):
            # As in Kafka: the heartbeat succeeds, and a later one returns the state of the loaded group.
            return ErrorCode.NONE if group is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else group
        return await self._host.request(
            group, ErrorCode, requests.HeartbeatRequested, generation, member_id, group_instance_id
        )

    async def leave(self, request: LeaveRequest) -> LeaveResult:
        """Handle a LeaveGroup request."""
        group = self._find(request.group_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if not isinstance(group, ErrorCode):
            return await self._host.request(group, LeaveResult, requests.LeaveRequested, request)
        if group is not ErrorCode.UNKNOWN_MEMBER_ID:
            return LeaveResult(group)
        left = tuple(LeftMember(leaving.member_id, leaving.group_instance_id, group) for leaving in request.members)
        return LeaveResult(ErrorCode.NONE, left)

    def _has_capacity(self, growth: int) -> bool:
        """Return whether the node has enough memory left for consumer groups to use `growth` more bytes."""
        bytes_max = GROUPS_BYTES_MAX * (2 if growth <= SMALL_MEMBER_BYTES_MAX else 1)
        return growth <= 0 or self._host.memory_bytes + growth <= bytes_max

    def _find(self, group_id: str, missing: ErrorCode) -> GroupMachine | ErrorCode:
        """Return a group's state machine, the error `missing` if there is none, or an error if this node does not serve
        it.
        """
        term = self._host.check_ownership(group_id)
        if isinstance(term, ErrorCode):
            return term
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        return self._host.get(group_id, term) or missing

    # --- administration ---

    async def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> ErrorCode | Mapping[TopicPartition, ErrorCode]:
        """Delete a group's committed offsets, except those of topics to which the group subscribes."""
        group = self._find(group_id, ErrorCode.GROUP_ID_NOT_FOUND)
        if isinstance(group, ErrorCode):
            return group
        if not group.is_empty and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return ErrorCode.NON_EMPTY_GROUP
        subscribed = group.filter_subscribed(topic for topic, _ in partitions)
        committed = self._store.image.offsets(group_id)
        keys = [OffsetKey(*key) for key in partitions if key[0] not in subscribed and key in committed]
        if keys:
            error = await self._proposals.propose(group_id, DeleteOffsets(group_id, tuple(keys), group.epoch))
            if error is not None:
                return error
        subscribed_error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        return {key: subscribed_error if key[0] in subscribed else ErrorCode.NONE for key in partitions}

    def describe(self, group_id: str) -> DescribedGroup:
        """Return a consumer group and its members for DescribeGroups.

        The empty group id is legal here and in `delete`, as in Kafka: offsets may have been committed under it.
        """
        term = self._host.check_ownership(group_id)
        found = term if isinstance(term, ErrorCode) else self._host.get(group_id, term)
        if found is None or isinstance(found, ErrorCode):
            return DescribedGroup(group_id, GroupState.DEAD, "", "", (), found or ErrorCode.GROUP_ID_NOT_FOUND)
        return found.describe()

    def iterate_groups(self, states: Collection[str], types: Collection[str]) -> Iterator[ListedGroup | None]:
        """Yield the groups that this node coordinates.

        Filters ignore case; an empty filter matches all groups. Yields None for a group that does not match, so that
        the caller can pause there.
        """
        wanted_states = {state.lower() for state in states}
        wanted_types = {group_type.lower() for group_type in types}
        for found in self._host.iterate_owned_machines():
            entry = self._to_listing(found)
            is_wanted = entry is not None and (
                (not wanted_states or entry.state.lower() in wanted_states)
                and (not wanted_types or entry.group_type in wanted_types)
            )
            yield entry if is_wanted else None

    def _to_listing(self, found: GroupMachine | str | None) -> ListedGroup | None:
        if found is None:
            return None
        return self._groups.to_listing(found) if isinstance(found, str) else found.to_listing()

    async def delete(self, group_ids: Sequence[str]) -> Mapping[str, ErrorCode]:
        """Delete groups and return an error code for each of them."""
        found = {group_id: self._find_group_for_deletion(group_id) for group_id in group_ids}
        # Create tasks only for existing groups: tasks for 100,000 invented names would block the event loop.
        groups = [group for group in found.values() if not isinstance(group, ErrorCode)]
        outcomes = await asyncio.gather(*map(self._delete_group, groups))
        errors = dict(zip((group.key for group in groups), outcomes, strict=True))
        return {key: group if isinstance(group, ErrorCode) else errors[key] for key, group in found.items()}

    def _find_group_for_deletion(self, group_id: str) -> GroupMachine | ErrorCode:
        term = self._host.check_ownership(group_id)
        if isinstance(term, ErrorCode):
            return term
        if self._host.unload_if_deleted(group_id):
            return ErrorCode.NONE  # an earlier request, whose response was lost, has deleted the group
        return self._host.get(group_id, term) or ErrorCode.GROUP_ID_NOT_FOUND

    async def _delete_group(self, group: GroupMachine) -> ErrorCode:
        return await self._host.request(group, ErrorCode, requests.DeletionRequested)
