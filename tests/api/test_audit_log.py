"""The audit log contains every administrative change, with its principal and the changed objects."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from chronik.api.routing.audit import CHANGE_DESCRIBERS, with_audit_log
from chronik.api.routing.handlers import wrap_as_reply_handler
from chronik.api.shared.context import RequestContext
from chronik.protocol.apis import APIS
from chronik.protocol.codec import RESPONSES
from chronik.protocol.errors import ErrorCode
from chronik.request_reply import ConnectedClient
from tests.api.authorizing_node import AuthorizingNode, build_request, build_struct, error_codes_in, send_request
from tests.raw import RawClient

IMPORT_ID = bytes(range(16))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizingNode]:
    node = AuthorizingNode(tmp_path_factory.mktemp("node"), **{"super.users": "User:ANONYMOUS"})
    yield node
    node.close()


@pytest.fixture
def client(node: AuthorizingNode, caplog: pytest.LogCaptureFixture) -> Iterator[RawClient]:
    caplog.set_level(logging.INFO, "chronik.audit")
    with RawClient(node.bootstrap) as client:
        yield client


def audited_changes(caplog: pytest.LogCaptureFixture, api: str) -> list[tuple[list[str], int]]:
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "chronik.audit"]
    return [(line["changed"], line["failed"]) for line in lines if line["api"] == api]


def create(client: RawClient, name: str) -> None:
    topic = {"name": name, "num_partitions": 2, "replication_factor": 1}
    assert not error_codes_in(send_request(client, "CreateTopics", 7, topics=[topic]))


def partitions(name: str, **values: Any) -> list[dict[str, Any]]:
    return [{"name": name, "partitions": [{"partition_index": index, **values} for index in (0, 9)]}]


def test_audit_log_contains_deleted_records(client: RawClient, caplog: pytest.LogCaptureFixture) -> None:
    create(client, "short")
    send_request(client, "DeleteRecords", 2, topics=partitions("short", offset=-1), timeout_ms=1000)
    assert audited_changes(caplog, "DeleteRecords") == [(["short-0 before 0"], 1)]


def test_audit_log_contains_deleted_offsets_and_groups(client: RawClient, caplog: pytest.LogCaptureFixture) -> None:
    create(client, "read")
    offsets = [{"partition_index": index, "committed_offset": 1} for index in (0, 1)]
    topics = [{"name": "read", "partitions": offsets}]
    assert not error_codes_in(
        send_request(client, "OffsetCommit", 8, group_id="g", generation_id_or_member_epoch=-1, topics=topics)
    )
    send_request(client, "OffsetDelete", 0, group_id="g", topics=[*partitions("read"), *partitions("none")])
    send_request(client, "DeleteGroups", 2, groups_names=["g", "none"])
    assert audited_changes(caplog, "OffsetDelete") == [(["g: read-0", "g: read-9"], 2)]
    assert audited_changes(caplog, "DeleteGroups") == [(["g"], 1)]


def test_audit_log_contains_auto_created_topics(client: RawClient, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        send_request(
            client, "Metadata", 12, topics=[{"name": "asked-for"}, {"name": "no name"}], allow_auto_topic_creation=True
        )
    assert audited_changes(caplog, "Metadata") == [(["asked-for"], 1)]


def test_audit_log_contains_imports_and_commit_holds(client: RawClient, caplog: pytest.LogCaptureFixture) -> None:
    hold = send_request(client, "HoldCommits", 0).hold
    send_request(client, "HoldCommits", 0, hold=hold)
    assert audited_changes(caplog, "HoldCommits") == [([f"Hold {hold}"], 0), ([f"Release {hold}"], 0)]
    assert not error_codes_in(
        send_request(client, "AlterImport", 0, import_id=IMPORT_ID, action=0, source="x", topic_count=1)
    )
    send_request(client, "AlterImport", 0, import_id=IMPORT_ID, action=9)
    assert not error_codes_in(send_request(client, "AlterImport", 0, import_id=IMPORT_ID, action=3))
    assert audited_changes(caplog, "AlterImport") == [
        ([f"Begin {IMPORT_ID.hex()}"], 0),
        ([f"GiveUp {IMPORT_ID.hex()}"], 0),
    ]


@pytest.mark.parametrize(
    ("api", "request_", "response", "descriptions"),
    [
        ("UnregisterBroker", {"broker_id": 3}, {}, ["3"]),
        ("AddRaftVoter", {"voter_id": 3}, {}, ["3"]),
        ("RemoveRaftVoter", {"voter_id": 3}, {}, ["3"]),
        (
            "AlterNodes",
            {"changes": [{"node_id": 3, "action": 4}, {"node_id": 4, "action": 99}]},
            {"results": [{"node_id": 3}, {"node_id": 4, "error_code": 42}]},
            ["Drain 3", "4 failed"],
        ),
        (
            "UpdateFeatures",
            {"feature_updates": [{"feature": "metadata.version", "max_version_level": 7}]},
            {},
            ["metadata.version=7"],
        ),
        (
            "AlterPartitionReassignments",
            {
                "topics": [
                    {
                        "name": "t",
                        "partitions": [
                            {"partition_index": 0, "replicas": [1, 2]},
                            {"partition_index": 1, "replicas": None},
                        ],
                    }
                ]
            },
            {"responses": [{"name": "t", "partitions": [{"partition_index": 0}, {"partition_index": 1}]}]},
            ["t-0 to 1,2", "t-1 to no move"],
        ),
        (
            "ElectLeaders",
            {"election_type": 1, "topic_partitions": None},
            {"replica_election_results": [{"topic": "t", "partition_result": [{"partition_id": 5}]}]},
            ["unclean t-5"],
        ),
        (
            "WriteTxnMarkers",
            {},
            {"markers": [{"producer_id": 8, "topics": [{"name": "t", "partitions": [{"partition_index": 1}]}]}]},
            ["producer 8 in t-1"],
        ),
        (
            "AlterImport",
            {"import_id": IMPORT_ID, "action": 1, "topics": [{"name": "a"}, {"name": "b"}]},
            {},
            ["a", "b"],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_audit_descriptions_of_cluster_changes(
    api: str, request_: dict[str, Any], response: dict[str, Any], descriptions: list[str]
) -> None:
    """Describe changes that a single node cannot make."""
    (key,) = (each.key for each in APIS.values() if each.name == api)
    outcomes = CHANGE_DESCRIBERS[api](build_request(api, request_), build_struct(RESPONSES[key], response))
    assert [f"{name().split()[-1]} failed" if code else name() for name, code in outcomes] == descriptions


def test_audit_log_contains_changes_that_timed_out(caplog: pytest.LogCaptureFixture) -> None:
    """A client may set a timeout of 0 ms; the change is applied nevertheless."""
    caplog.set_level(logging.INFO, "chronik.audit")
    (api,) = (each for each in APIS.values() if each.name == "DeleteRecords")
    results = [
        {"partition_index": 0, "error_code": ErrorCode.REQUEST_TIMED_OUT},
        {"partition_index": 1, "error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER},
    ]
    response = build_struct(RESPONSES[api.key], {"topics": [{"name": "t", "partitions": results}]})

    async def handle(*_: Any) -> Any:
        return response

    context = RequestContext(2, "", ConnectedClient("127.0.0.1", 9092, 1), api_key=api.key)
    services: Any = None

    async def run() -> None:
        await with_audit_log(api.name, wrap_as_reply_handler(handle))(services, build_request(api.name, {}), context)

    asyncio.run(run())
    assert audited_changes(caplog, api.name) == [(["t-0 (timed out)"], 1)]
