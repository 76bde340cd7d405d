"""Authorization of each API: a client that lacks one of the needed permissions changes nothing and learns nothing.

A client with exactly the needed permissions succeeds; without them, existing and missing objects look the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from chronik.protocol.apis import APIS
from chronik.protocol.permissions import CLUSTER_NAME, AclResourceType, RequiredPermission
from tests.api.authorization_cases import CASES, AuthorizationCase, ResourceNames
from tests.api.authorizing_node import AuthorizingNode, error_codes_in, send_request
from tests.raw import RawClient

WITHOUT_RIGHTS = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}
LISTS = {"ListGroups", "ListTransactions", "DescribeCluster"}
"""APIs that every client may use and that return what the client may describe: see test_authorization_filtering.py."""
ELSEWHERE = {
    "Metadata": {"Create Topic", "Create Cluster"},
    "CreateTopics": {"DescribeConfigs Topic"},
    "DeleteTopics": {"Describe Topic"},
    "DescribeTransactions": {"Describe Topic"},
}
"""Permissions for special cases, which have tests of their own."""

OWN_TOPICS = {"AnswerSamples": "__chronik_pipelines"}
"""Topics of APIs that do not name a topic but need a permission on one."""

EXISTING = ResourceNames("there", "group1", "ident1")
MISSING = ResourceNames("never", "group0", "ident0")
EVERY_REQUEST = pytest.mark.parametrize(
    "asked", CASES, ids=lambda each: f"{each.api}-{each.version}-{'-'.join(need_text(need) for need in each.needs)}"
)


def need_text(need: RequiredPermission) -> str:
    return " ".join("".join(map(str.capitalize, word.name.split("_"))) for word in need)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizingNode]:
    node = AuthorizingNode(tmp_path_factory.mktemp("guarded"))
    yield node
    node.close()


@pytest.fixture
def client(node: AuthorizingNode) -> Iterator[RawClient]:
    with RawClient(node.bootstrap) as client:
        yield client


@pytest.fixture
def names(node: AuthorizingNode, client: RawClient) -> ResourceNames:
    """Create the existing objects if necessary, with permissions that are revoked afterwards."""
    node.revoke_all()
    with node.all_permitted():
        topic = {"name": EXISTING.topic, "num_partitions": 1, "replication_factor": 1}
        send_request(client, "CreateTopics", 7, topics=[topic])
        offset = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
        committed = [{"name": EXISTING.topic, "partitions": [offset]}]
        assert not error_codes_in(send_request(client, "OffsetCommit", 8, group_id=EXISTING.group, topics=committed))
        begun = send_request(
            client,
            "InitProducerId",
            4,
            transactional_id=EXISTING.transactional_id,
            transaction_timeout_ms=60_000,
        )
        assert not error_codes_in(begun)
        # this opens the log, so that appended records would be noticed
        wanted = [{"name": EXISTING.topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        assert not error_codes_in(send_request(client, "ListOffsets", 7, replica_id=-1, topics=wanted))
    return EXISTING._replace(producer_id=begun.producer_id, producer_epoch=begun.producer_epoch)


def resource_name(need: RequiredPermission, asked: AuthorizationCase, names: ResourceNames) -> str:
    if asked.values(names) == asked.values(names._replace(topic="x")) and need.resource_type is AclResourceType.TOPIC:
        return OWN_TOPICS.get(asked.api, "__consumer_offsets")
    known = {
        AclResourceType.TOPIC: names.topic,
        AclResourceType.GROUP: names.group,
        AclResourceType.TRANSACTIONAL_ID: names.transactional_id,
        AclResourceType.CLUSTER: CLUSTER_NAME,
    }
    assert need.resource_type in known, f"add a name for the {need.resource_type.name} of {asked.api}"
    return known[need.resource_type]


@EVERY_REQUEST
def test_client_with_needed_permissions_is_authorized(
    node: AuthorizingNode, client: RawClient, names: ResourceNames, asked: AuthorizationCase
) -> None:
    for need in asked.needs:
        node.allow(*need, resource_name(need, asked, names))
    found = error_codes_in(send_request(client, asked.api, asked.version, **asked.values(names)))
    assert set(found) <= asked.later_errors


@EVERY_REQUEST
def test_client_lacking_one_permission_is_denied_and_changes_nothing(
    node: AuthorizingNode, client: RawClient, names: ResourceNames, asked: AuthorizationCase
) -> None:
    for missing, refusal in asked.needs.items():
        node.revoke_all()
        for need in asked.needs:
            if need is not missing:
                node.allow(*need, resource_name(need, asked, names))
        before = node.stored_records()
        found = error_codes_in(send_request(client, asked.api, asked.version, **asked.values(names)))
        assert found == [refusal], need_text(missing)
        assert node.stored_records() == before


def comparable_text(answer: object) -> str:
    return re.sub(r"<memory at \w+>", "records", repr(answer))


@EVERY_REQUEST
def test_unauthorized_client_cannot_detect_existing_objects(
    client: RawClient, names: ResourceNames, asked: AuthorizationCase
) -> None:
    missing = MISSING._replace(producer_id=names.producer_id, producer_epoch=names.producer_epoch)
    there, nowhere = (send_request(client, asked.api, asked.version, **asked.values(each)) for each in (names, missing))
    text = comparable_text(there)
    for name, other in zip(names[:3], missing[:3], strict=True):
        text = text.replace(name, other)
    assert text == comparable_text(nowhere)


def test_every_declared_permission_has_a_test_case() -> None:
    asked: dict[str, set[str]] = {}
    for each in CASES:
        asked.setdefault(each.api, set()).update(map(need_text, each.needs))
    for api in APIS.values():
        if api.name in WITHOUT_RIGHTS:
            assert not api.required_permissions
        elif api.name not in LISTS:
            covered = asked.get(api.name, set()) | ELSEWHERE.get(api.name, set())
            missing = set(map(need_text, api.required_permissions)) - covered
            assert not missing, (
                f"{api.name} has no case for it in tests/api/authorization_cases.py (or LISTS / ELSEWHERE above)"
            )
            more = covered - set(map(need_text, api.required_permissions))
            assert not more, f"{api.name} has a case for it, but its entry in protocol/apis.py does not declare it"
