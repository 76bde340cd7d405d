"""CreateTopics: create topics.

Version 1 adds validate-only requests, 4 -1 for the broker's default partition count and replication factor, 5 configs
in the response, 7 topic ids. Java's admin client fails on null `configs` in the response: send an empty array.
"""

from __future__ import annotations

from chronik.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    mirror_request_field,
    string,
    uuid,
)


class CreatableReplicaAssignment(Struct):
    partition_index: int = int32("0+")
    broker_ids: list[int] = array(int32, "0+")


class CreatableTopicConfig(Struct):
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


class CreatableTopic(Struct):
    name: str = string("0+")
    num_partitions: int = int32("0+")
    replication_factor: int = int16("0+")
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment, "0+")
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig, "0+")


class CreateTopicsRequest(Request):
    topics: list[CreatableTopic] = array(CreatableTopic, "0+")
    timeout_ms: int = int32("0+", default=60000)
    validate_only: bool = boolean("1+")


class CreatableTopicConfigs(Struct):
    name: str = string("5+")
    value: str | None = string("5+", nullable="5+")
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", default=-1)
    is_sensitive: bool = boolean("5+")


class CreatableTopicResult(Struct):
    name: str = mirror_request_field("name", string("0+"))
    topic_id: bytes = uuid("7+")
    error_code: int = int16("0+")
    error_message: str | None = string("1+", nullable="1+")
    topic_config_error_code: int = int16("5+", tag=0)
    num_partitions: int = int32("5+", default=-1)
    replication_factor: int = int16("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, "5+", nullable="5+")


class CreateTopicsResponse(Response):
    throttle_time_ms: int = int32("2+")
    topics: list[CreatableTopicResult] = mirror_request_field("topics", array(CreatableTopicResult, "0+"))
