"""Small Kafka requests whose responses are expensive, as encoded frames.

A payload maps the number of a request to its frame. Most payloads send the same frame every time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Final

from chronik.protocol.apis import APIS
from chronik.protocol.codec import RequestHeader, encode_request
from chronik.protocol.messages.describe_acls import DescribeAclsRequest
from chronik.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from chronik.protocol.messages.describe_groups import DescribeGroupsRequest
from chronik.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from chronik.protocol.messages.describe_transactions import DescribeTransactionsRequest
from chronik.protocol.messages.init_producer_id import InitProducerIdRequest
from chronik.protocol.messages.list_groups import ListGroupsRequest
from chronik.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from chronik.protocol.messages.list_transactions import ListTransactionsRequest
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from chronik.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from chronik.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from chronik.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from chronik.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from chronik.protocol.messages.sasl_handshake import SaslHandshakeRequest
from chronik.protocol.records import Record, encode_batch
from chronik.protocol.schema import Request
from chronik.security.sasl.outcomes import PLAIN

Payload = Callable[[int], bytes]

PATTERN: Final = "(x*)*(x*)*y"
"""A pattern that takes exponential time with backtracking, and many steps without."""

LARGE_TOPIC: Final = "flood-large"
LARGE_GROUP: Final = "flood-large"
VALIDATED_TOPIC: Final = "flood-validated"
VALIDATED_PARTITIONS: Final = 3
"""The number of partitions, so that each node of a cluster leads one."""
UNKNOWN_SCHEMA_ID: Final = 1_000_000
LONG_ID_BYTES: Final = 32_000
TRANSACTION_TIMEOUT_MS: Final = 60_000
TOPIC: Final = 2
ANY: Final = 1
LATEST: Final = -1

VERSIONS_MAX: Final[dict[type[Request], int]] = {
    # The last versions that identify topics by name.
    MetadataRequest: 12,
    OffsetCommitRequest: 9,
    OffsetFetchRequest: 9,
    ProduceRequest: 12,
    # The last version that Apache Kafka 4.3 and this repository both serve.
    InitProducerIdRequest: 5,
    ListOffsetsRequest: 10,
    DescribeLogDirsRequest: 4,
}


def encode_frame(request: Request) -> bytes:
    """Encode a request at the highest version that names topics instead of using their ids."""
    api = APIS[request.__schema__.api_key]
    version = VERSIONS_MAX.get(type(request), api.max_version)
    return encode_request(RequestHeader(api.key, version, 1, "flood"), request)


def login_frames(user: str, password: str) -> list[bytes]:
    """Return the frames of a SASL/PLAIN login."""
    message = b"\0".join((b"", user.encode(), password.encode()))
    return [
        encode_frame(SaslHandshakeRequest(mechanism=PLAIN)),
        encode_frame(SaslAuthenticateRequest(auth_bytes=message)),
    ]


def topic_name(number: int) -> str:
    return f"flood-{number}"


def group_name(number: int) -> str:
    return f"flood-group-{number}"


def short_id(number: int) -> str:
    return f"xxxxxxxx-{number}"


def long_id(number: int) -> str:
    return f"{number}-".ljust(LONG_ID_BYTES, "x")


def _constant(make: Callable[[int], Request]) -> Callable[[int], Payload]:
    def payload(names: int) -> Payload:
        encoded = encode_frame(make(names))
        return lambda number: encoded

    return payload


def _numbered(make: Callable[[int], Request]) -> Callable[[int], Payload]:
    return lambda names: lambda number: encode_frame(make(number))


def _named_topics(names: Iterable[str]) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def _describe_configs(names: int) -> DescribeConfigsRequest:
    resources = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name=topic_name(number), configuration_keys=None)
        for number in range(names)
    ]
    return DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)


def _list_offsets(names: int) -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in range(names)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=LARGE_TOPIC, partitions=partitions)])


def _describe_acls(names: int) -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )


def encode_unknown_schemas(count: int) -> bytes:
    """Return a batch whose records each name another unknown schema id."""
    values = (b"\0" + struct.pack(">I", UNKNOWN_SCHEMA_ID + number) for number in range(count))
    return encode_batch([Record(offset, -1, None, value) for offset, value in enumerate(values)])


def _produce_unknown_schemas(names: int) -> ProduceRequest:
    """Return a request with a batch of unknown schema ids for each partition."""
    records = encode_unknown_schemas(names)
    partitions = [PartitionProduceData(index=index, records=records) for index in range(VALIDATED_PARTITIONS)]
    topic = TopicProduceData(name=VALIDATED_TOPIC, partition_data=partitions)
    return ProduceRequest(acks=-1, timeout_ms=TRANSACTION_TIMEOUT_MS, topic_data=[topic])


def init_producer_request(transactional_id: str) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)


def offset_commit_request(group: str, topic: str, partitions: Iterable[int]) -> OffsetCommitRequest:
    offsets = [OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in partitions]
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=offsets)])


PAYLOADS: Final[dict[str, Callable[[int], Payload]]] = {
    "list-transactions-pattern": _constant(lambda names: ListTransactionsRequest(transactional_id_pattern=PATTERN)),
    "list-transactions": _constant(lambda names: ListTransactionsRequest()),
    "metadata-unknown": _constant(lambda names: _named_topics(f"unknown-{number}" for number in range(names))),
    "metadata-all": _constant(lambda names: MetadataRequest(topics=None)),
    "describe-configs": _constant(_describe_configs),
    "list-groups": _constant(lambda names: ListGroupsRequest()),
    "describe-groups": _constant(lambda names: DescribeGroupsRequest(groups=[*map(group_name, range(names))])),
    "describe-transactions": _constant(
        lambda names: DescribeTransactionsRequest(transactional_ids=[*map(short_id, range(names))])
    ),
    "describe-log-dirs": _constant(lambda names: DescribeLogDirsRequest(topics=None)),
    "list-offsets": _constant(_list_offsets),
    "offset-fetch": _constant(
        lambda names: OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=LARGE_GROUP, topics=None)])
    ),
    "describe-acls": _constant(_describe_acls),
    "unknown-schemas": _constant(_produce_unknown_schemas),
    "short-ids": _numbered(lambda number: init_producer_request(short_id(number))),
    "long-ids": _numbered(lambda number: init_producer_request(long_id(number))),
    "groups": _numbered(lambda number: offset_commit_request(group_name(number), LARGE_TOPIC, [0])),
}
"""Payloads by name; each takes the number of names that a request lists."""
