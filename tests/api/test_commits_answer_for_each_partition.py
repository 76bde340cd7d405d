"""OffsetCommit: each partition has its own answer, in its version's words; what does not exist is not committed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from chronik.api import offset_commit
from chronik.api.shared.context import Context, Services
from chronik.metadata.commands.groups import CommitOffsetBatch
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.groups.driving import committed_offsets, run, started
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
    """The errors, by topic and partition."""
    async with started(store) as coordinator:
        parts = SimpleNamespace(
            authorizer=None, groups=coordinator, image=store.image, coordinators=SimpleNamespace(stands_alone=False)
        )
        context = cast(Context, SimpleNamespace(version=version))
        response = await offset_commit.handle(cast(Services, parts), request, context)
    return [[partition.error_code for partition in each.partitions] for each in response.topics]


@pytest.mark.parametrize("version", VERSIONS)
def test_only_partitions_that_exist_are_committed(version: int) -> None:
    async def story() -> None:
        store = MemoryStore()
        indexes = (-1, 0, LAST, LAST + 1, 2**31 - 1)
        topics = [topic("t", TOPIC_ID, *indexes), topic("missing", b"m" * 16, 0), topic("t", TOPIC_ID, -1, LAST)]
        errors = await commit(store, version, OffsetCommitRequest(group_id="g", topics=topics))
        missing = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else UNKNOWN
        assert errors == [[UNKNOWN, 0, 0, UNKNOWN, UNKNOWN], [missing], [UNKNOWN, 0]]
        assert set(await committed_offsets(store, "g")) == {("t", 0), ("t", LAST)}

    run(story)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_does_not_exist_is_told_whatever_else_is_wrong(version: int) -> None:
    async def story() -> None:
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

    run(story)


def test_nothing_is_proposed_when_nothing_exists() -> None:
    async def story() -> None:
        store = MemoryStore()
        request = OffsetCommitRequest(group_id="g", topics=[topic("missing", TOPIC_ID, 0)])
        assert await commit(store, 8, request) == [[UNKNOWN]]
        assert store.commands == []
        assert "g" not in store.image.groups

    run(story)


def test_any_negative_leader_epoch_means_none() -> None:
    async def story() -> None:
        store = MemoryStore()
        request = OffsetCommitRequest(group_id="g", topics=[topic("t", TOPIC_ID, 0, leader_epoch=-7)])
        assert await commit(store, 8, request) == [[0]]
        (command,) = store.commands
        assert isinstance(command, CommitOffsetBatch)
        assert command.commits[0].offsets[0].leader_epoch == -1

    run(story)
