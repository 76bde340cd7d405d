"""OffsetCommit returns an error code for each partition, and commits only existing partitions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from chronik.api import offset_commit
from chronik.api.shared.context import RequestContext, Services
from chronik.metadata.commands.groups import CommitOffsetBatch
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.groups.coordinator_helpers import committed_offsets, run_scenario, running_coordinator
from tests.groups.memory_store import PARTITIONS, MemoryStore

VERSIONS = range(11)
TOPIC_ID = b"t" * 16
LAST = len(PARTITIONS) - 1
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def topic(name: str, topic_id: bytes, *indexes: int, leader_epoch: int = -1) -> OffsetCommitRequestTopic:
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=5, committed_leader_epoch=leader_epoch)
        for index in indexes
    ]
    return OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=partitions)


async def commit(store: MemoryStore, version: int, request: OffsetCommitRequest) -> list[list[int]]:
    """Return the error codes by topic and partition."""
    async with running_coordinator(store) as coordinator:
        services = SimpleNamespace(
            authorizer=None, groups=coordinator, image=store.image, coordinators=SimpleNamespace(is_standalone=False)
        )
        context = cast(RequestContext, SimpleNamespace(version=version))
        response = await offset_commit.handle(cast(Services, services), request, context)
    return [[partition.error_code for partition in each.partitions] for each in response.topics]


@pytest.mark.parametrize("version", VERSIONS)
def test_offset_commit_stores_only_existing_partitions(version: int) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        indexes = (-1, 0, LAST, LAST + 1, 2**31 - 1)
        topics = [topic("t", TOPIC_ID, *indexes), topic("missing", b"m" * 16, 0), topic("t", TOPIC_ID, -1, LAST)]
        errors = await commit(store, version, OffsetCommitRequest(group_id="g", topics=topics))
        missing = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else UNKNOWN
        assert errors == [[UNKNOWN, 0, 0, UNKNOWN, UNKNOWN], [missing], [UNKNOWN, 0]]
        assert set(await committed_offsets(store, "g")) == {("t", 0), ("t", LAST)}

    run_scenario(scenario)


@pytest.mark.parametrize("version", VERSIONS)
def test_unknown_partition_error_precedes_group_error(version: int) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        request = OffsetCommitRequest(
            group_id="g",
            member_id="member",
            generation_id_or_member_epoch=3,
            topics=[topic("t", TOPIC_ID, 0, LAST + 1)],
        )
        no_group = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
        assert await commit(store, version, request) == [[no_group, UNKNOWN]]
        assert store.commands == []

    run_scenario(scenario)


def test_commit_of_unknown_topics_proposes_no_command() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        request = OffsetCommitRequest(group_id="g", topics=[topic("missing", TOPIC_ID, 0)])
        assert await commit(store, 8, request) == [[UNKNOWN]]
        assert store.commands == []
        assert "g" not in store.image.groups

    run_scenario(scenario)


def test_negative_leader_epoch_is_stored_as_none() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        request = OffsetCommitRequest(group_id="g", topics=[topic("t", TOPIC_ID, 0, leader_epoch=-7)])
        assert await commit(store, 8, request) == [[0]]
        (command,) = store.commands
        assert isinstance(command, CommitOffsetBatch)
        assert command.commits[0].offsets[0].leader_epoch == -1

    run_scenario(scenario)
