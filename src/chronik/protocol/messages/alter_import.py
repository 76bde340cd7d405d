"""AlterImport: start an import, create its topics, finish it or abort it.

An API of Chronik, which ApiVersions does not list. Each action is idempotent.
"""

from __future__ import annotations

from enum import IntEnum

from chronik.protocol.schema import Request, Response, Struct, array, int8, int16, int32, int64, string, uuid


class ImportAction(IntEnum):
    BEGIN = 0
    TOPICS = 1
    FINISH = 2
    GIVE_UP = 3
    GROUPS = 4
    """Import groups with their committed offsets. Requires `chronik.version` 5."""


class ImportConfig(Struct):
    name: str = string("0+")
    value: str = string("0+")


class ImportTopic(Struct):
    topic_id: bytes = uuid("0+")
    name: str = string("0+")
    created_ms: int = int64("0+")
    replication_factor: int = int16("0+", default=-1)
    leader_epochs: list[int] = array(int32, "0+")
    configs: list[ImportConfig] = array(ImportConfig, "0+")


class ImportOffset(Struct):
    topic: str = string("0+")
    partition: int = int32("0+")
    offset: int = int64("0+")
    leader_epoch: int = int32("0+", default=-1)
    metadata: str | None = string("0+", nullable="0+", default=None)
    commit_time_ms: int = int64("0+", default=-1)
    expire_time_ms: int = int64("0+", default=-1)


class ImportGroup(Struct):
    group_id: str = string("0+")
    protocol_type: str = string("0+")
    offsets: list[ImportOffset] = array(ImportOffset, "0+")


class ImportGroupConfigs(Struct):
    group_id: str = string("0+")
    configs: list[ImportConfig] = array(ImportConfig, "0+")


class AlterImportRequest(Request):
    import_id: bytes = uuid("0+")
    action: int = int8("0+")
    source: str = string("0+")
    topic_count: int = int32("0+")
    producer_ids: int = int64("0+")
    topics: list[ImportTopic] = array(ImportTopic, "0+")
    groups: list[ImportGroup] = array(ImportGroup, "0+")
    group_configs: list[ImportGroupConfigs] = array(ImportGroupConfigs, "0+")
    cluster_configs: list[ImportConfig] = array(ImportConfig, "0+")


class AlterImportResponse(Response):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    first_producer_id: int = int64("0+", default=-1)
    index: int = int64("0+", default=-1)
    """The index, in the metadata log, of the last command that the request proposed."""
