"""Failure responses derived from the message schemas: error codes at every level, with the names of the request."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from chronik.api.routing.handlers import HANDLERS
from chronik.protocol.apis import APIS, Api
from chronik.protocol.codec import REQUESTS, RESPONSES, decode_response, encode_response
from chronik.protocol.error_responses import build_error_fields, build_error_response
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from chronik.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from chronik.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from chronik.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from chronik.protocol.schema import Field, Request, Response, Struct
from chronik.request_reply import Disconnect
from tests.protocol.messages.values import generate

CODE = ErrorCode.NOT_CONTROLLER
SEEDS = 8
PAIRS = [(api, version) for api in APIS.values() for version in range(api.min_version, api.max_version + 1)]
EVERY_API = pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)


def versions(api: Api) -> range:
    return range(api.min_version, api.max_version + 1)


def generated(api: Api, version: int, style: str, seed: int = 0) -> Request:
    request = generate(REQUESTS[api.key], version, style, (api.key, version, seed))
    if isinstance(request, ProduceRequest):
        request.acks = -1
    return request


def answer(api: Api, version: int, request: Request) -> Response:
    """Return the failure response as a client decodes it."""
    frame = b"".join(encode_response(1, version, HANDLERS[api.key].failure(request, CODE)))
    return decode_response(api.key, version, memoryview(frame)[4:])[1]


def fields_of(part: Struct, version: int) -> list[Field]:
    return [field for field in part.__schema__.fields if field.versions.covers(version)]


def codes_in(part: Struct, version: int) -> Iterator[int]:
    for field in fields_of(part, version):
        value = getattr(part, field.name)
        if field.name == "error_code":
            yield value
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct):
                yield from codes_in(each, version)


def compare(response: Struct, asked: Any, version: int) -> None:
    for field in fields_of(response, version):
        if field.mirrors is None:
            continue
        value = getattr(response, field.name)
        wanted = getattr(asked, field.mirrors) if isinstance(asked, Struct) else asked
        if isinstance(field.element, type):
            for each, of in zip(value, wanted or (), strict=True):
                compare(each, of, version)
        else:
            expected = field.default if wanted is None and value is not None else wanted
            assert value == expected, f"version {version}"


@EVERY_API
def test_failure_sets_every_error_code_of_the_version(api: Api) -> None:
    for version in versions(api):
        response = answer(api, version, generated(api, version, "highest"))  # every array has two elements
        assert set(codes_in(response, version)) == {CODE}, version


@EVERY_API
def test_failure_repeats_the_names_of_the_request(api: Api) -> None:
    for version, seed in product(versions(api), range(SEEDS)):
        request = generated(api, version, "mixed", seed)
        response = answer(api, version, request)
        if isinstance(request, DeleteTopicsRequest) and version < 6:
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in request.topic_names])
        compare(response, request, version)


NOT_REPEATED = {
    "AlterPartitionReassignmentsResponse": {"allow_replication_factor_change"},
    "CreatableTopicResult": {"num_partitions", "replication_factor", "configs"},
    "DescribeQuorumResponse": {"topics"},
    "EndTxnResponse": {"producer_id", "producer_epoch"},
    "EpochEndOffset": {"leader_epoch"},
    "FetchResponse": {"session_id"},
    "ImportedPartitionResult": {"log_start_offset"},
    "InitProducerIdResponse": {"producer_id", "producer_epoch"},
    "JoinGroupResponse": {"protocol_type"},
    "LeaveGroupResponse": {"members"},
    "ListOffsetsPartitionResponse": {"timestamp"},
    "ListPartitionReassignmentsResponse": {"topics"},
    "OffsetDeleteResponse": {"topics"},
    "OffsetFetchResponseGroup": {"topics"},
    "PartitionData": {"high_watermark", "log_start_offset"},
    "SaslAuthenticateResponse": {"auth_bytes"},
    "SyncGroupResponse": {"protocol_type", "protocol_name"},
}
"""Response fields that have the name of a request field but another meaning, or that Kafka leaves out as well if the
whole request fails."""


def unmirrored(response: type[Struct], asked: type[Struct], version: int) -> Iterator[tuple[str, str]]:
    """Yield response fields that have the name and kind of a request field but do not mirror it.

    The field name is "" for an element type that mirrors no plain field.
    """
    named = {field.name: field for field in asked.__schema__.fields if field.versions.covers(version)}
    for field in response.__schema__.fields:
        of = named.get(field.mirrors or field.name)
        if of is None or of.kind != field.kind or not field.versions.covers(version):
            continue
        if field.mirrors is None:
            yield response.__name__, field.name
        elif isinstance(field.element, type) and isinstance(of.element, type):
            yield from unmirrored(field.element, of.element, version)
        elif isinstance(field.element, type) and all(each.mirrors is None for each in field.element.__schema__.fields):
            yield field.element.__name__, ""


def test_response_fields_that_repeat_the_request_are_declared_as_mirrors() -> None:
    found: dict[str, set[str]] = {}
    for api, version in PAIRS:
        for response, name in unmirrored(RESPONSES[api.key], REQUESTS[api.key], version):
            found.setdefault(response, set()).add(name)
    assert found == NOT_REPEATED, "declare mirror(…) in protocol/schema, or add the field to NOT_REPEATED"


def test_fetch_failure_repeats_only_requested_partitions() -> None:
    request = FetchRequest(
        session_id=7,
        topics=[FetchTopic(topic="a", partitions=[FetchPartition(partition=3, log_start_offset=5)])],
        forgotten_topics_data=[ForgottenTopic(topic="b", partitions=[1])],
    )
    response = build_error_response(FetchResponse, request, CODE)
    assert (response.error_code, response.session_id) == (CODE, 0)
    ((topic,), (data,)) = response.responses, response.responses[0].partitions
    assert (topic.topic, data.partition_index, data.error_code, data.records) == ("a", 3, CODE, b"")
    assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (-1, -1, -1)


def test_failure_repeats_null_names_only_in_nullable_fields() -> None:
    by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=b"i" * 16)])
    assert (
        build_error_response(MetadataResponse, by_id, CODE).topics[0].name == ""
    )  # nullable since 12, but ids exist since 10
    deleted = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=b"i" * 16)])
    assert HANDLERS[20].failure(deleted, CODE).responses[0].name is None  # type: ignore[attr-defined]


def test_failed_produce_with_acks_0_raises_disconnect() -> None:
    request = ProduceRequest(acks=0, topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData()])])
    with pytest.raises(Disconnect, match="NOT_CONTROLLER"):
        HANDLERS[0].failure(request, CODE)


def test_failure_shares_one_element_for_unnamed_items() -> None:
    request = CreateAclsRequest(creations=[AclCreation()] * 250_000)
    results = build_error_response(CreateAclsResponse, request, CODE).results
    assert len(results) == 250_000
    assert results[0] is results[-1]
    assert results[-1].error_message == CODE.message


def test_error_fields_contain_code_and_message() -> None:
    assert build_error_fields(None) == {"error_code": ErrorCode.NONE, "error_message": None}
    assert build_error_fields(KafkaError(CODE, "not now")) == {"error_code": CODE, "error_message": "not now"}
