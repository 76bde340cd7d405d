"""Metadata: return brokers, topics and the leaders of their partitions.

In version 0 an empty list means all topics; from version 1 on null does, and an empty list means none. Version 4 can
forbid auto-creation, 7 adds leader epochs, 8 authorized operations, 10 topic ids, 12 lookups by id only, 13 a top-level
error.
"""

from __future__ import annotations

from chronik.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int16,
    int32,
    mirror_request_field,
    string,
    uuid,
)


class MetadataRequestTopic(Struct):
    topic_id: bytes = uuid("10+", ignorable=True)
    name: str | None = string("0+", nullable="10+")


class MetadataRequest(Request):
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, "0+", nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


class MetadataResponseBroker(Struct):
    node_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("1+", nullable="1+", default=None)


class MetadataResponsePartition(Struct):
    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("7+", default=-1)
    replica_nodes: list[int] = array(int32, "0+")
    isr_nodes: list[int] = array(int32, "0+")
    offline_replicas: list[int] = array(int32, "5+")


class MetadataResponseTopic(Struct):
    error_code: int = int16("0+")
    name: str | None = mirror_request_field("name", string("0+", nullable="12+"))
    topic_id: bytes = mirror_request_field("topic_id", uuid("10+"))
    is_internal: bool = boolean("1+")
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition, "0+")
    topic_authorized_operations: int = int32("8+", default=-0x8000_0000)


class MetadataResponse(Response):
    throttle_time_ms: int = int32("3+")
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker, "0+")
    cluster_id: str | None = string("2+", nullable="2+", default=None)
    controller_id: int = int32("1+", default=-1)
    topics: list[MetadataResponseTopic] = mirror_request_field("topics", array(MetadataResponseTopic, "0+"))
    cluster_authorized_operations: int = int32("8-10", default=-0x8000_0000)
    error_code: int = int16("13+")
