"""Each API, with each right that it asks for: who lacks one is told so and changes nothing, who has just these gets
through, and who has none cannot tell what exists from what does not."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from chronik.protocol.apis import APIS
from chronik.protocol.permissions import CLUSTER_NAME, Need, ResourceType
from tests.api.guarded import GuardedNode, ask, errors
from tests.api.needs import TABLE, Asked, Names
from tests.raw import RawClient

WITHOUT_RIGHTS = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}
LISTS = {"ListGroups", "ListTransactions", "DescribeCluster"}
"""Everybody may ask for them, and gets what they may see, if there is anything to see:
tests/api/test_what_one_may_not_see_is_left_out.py."""
ELSEWHERE = {
    "Metadata": {"Create Topic", "Create Cluster"},
    "CreateTopics": {"DescribeConfigs Topic"},
    "DeleteTopics": {"Describe Topic"},
    "DescribeTransactions": {"Describe Topic"},
}
"""What is asked for in special cases, which have tests of their own."""

OWN_TOPICS = {"AnswerSamples": "__chronik_pipelines"}
"""Of those that name no topic, and mean one."""

EXISTING = Names("there", "group1", "ident1")
MISSING = Names("never", "group0", "ident0")
EVERY_REQUEST = pytest.mark.parametrize(
    "asked", TABLE, ids=lambda each: f"{each.api}-{each.version}-{'-'.join(need_text(need) for need in each.needs)}"
)


def need_text(need: Need) -> str:
    return " ".join("".join(map(str.capitalize, word.name.split("_"))) for word in need)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedNode]:
    node = GuardedNode(tmp_path_factory.mktemp("guarded"))
    yield node
    node.close()


@pytest.fixture
def client(node: GuardedNode) -> Iterator[RawClient]:
    with RawClient(node.bootstrap) as client:
        yield client


@pytest.fixture
def names(node: GuardedNode, client: RawClient) -> Names:
    """What exists: it is made again if need be, with rights that are gone afterwards."""
    node.forbid_all()
    with node.all_allowed():
        topic = {"name": EXISTING.topic, "num_partitions": 1, "replication_factor": 1}
        ask(client, "CreateTopics", 7, topics=[topic])
        offset = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
        committed = [{"name": EXISTING.topic, "partitions": [offset]}]
        assert not errors(ask(client, "OffsetCommit", 8, group_id=EXISTING.group, topics=committed))
        begun = ask(
            client,
            "InitProducerId",
            4,
            transactional_id=EXISTING.transactional_id,
            transaction_timeout_ms=60_000,
        )
        assert not errors(begun)
        # from now on the log is open, and what would be appended is seen
        wanted = [{"name": EXISTING.topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        assert not errors(ask(client, "ListOffsets", 7, replica_id=-1, topics=wanted))
    return EXISTING._replace(producer_id=begun.producer_id, producer_epoch=begun.producer_epoch)


def named(need: Need, asked: Asked, names: Names) -> str:
    if asked.values(names) == asked.values(names._replace(topic="x")) and need.resource_type is ResourceType.TOPIC:
        return OWN_TOPICS.get(asked.api, "__consumer_offsets")
    known = {
        ResourceType.TOPIC: names.topic,
        ResourceType.GROUP: names.group,
        ResourceType.TRANSACTIONAL_ID: names.transactional_id,
        ResourceType.CLUSTER: CLUSTER_NAME,
    }
    assert need.resource_type in known, f"say above what the {need.resource_type.name} of {asked.api} is called"
    return known[need.resource_type]


@EVERY_REQUEST
def test_who_has_just_the_rights_that_are_needed_gets_through(
    node: GuardedNode, client: RawClient, names: Names, asked: Asked
) -> None:
    for need in asked.needs:
        node.allow(*need, named(need, asked, names))
    found = errors(ask(client, asked.api, asked.version, **asked.values(names)))
    assert set(found) <= asked.then


@EVERY_REQUEST
def test_who_lacks_one_of_them_is_told_so_and_changes_nothing(
    node: GuardedNode, client: RawClient, names: Names, asked: Asked
) -> None:
    for missing, refusal in asked.needs.items():
        node.forbid_all()
        for need in asked.needs:
            if need is not missing:
                node.allow(*need, named(need, asked, names))
        before = node.records()
        found = errors(ask(client, asked.api, asked.version, **asked.values(names)))
        assert found == [refusal], need_text(missing)
        assert node.records() == before


def told_as(answer: object) -> str:
    return re.sub(r"<memory at \w+>", "records", repr(answer))


@EVERY_REQUEST
def test_what_exists_cannot_be_told_from_what_does_not(client: RawClient, names: Names, asked: Asked) -> None:
    missing = MISSING._replace(producer_id=names.producer_id, producer_epoch=names.producer_epoch)
    there, nowhere = (ask(client, asked.api, asked.version, **asked.values(each)) for each in (names, missing))
    told = told_as(there)
    for name, other in zip(names[:3], missing[:3], strict=True):
        told = told.replace(name, other)
    assert told == told_as(nowhere)


def test_every_api_is_in_the_table_with_all_that_its_line_says() -> None:
    asked: dict[str, set[str]] = {}
    for each in TABLE:
        asked.setdefault(each.api, set()).update(map(need_text, each.needs))
    for api in APIS.values():
        if api.name in WITHOUT_RIGHTS:
            assert not api.needs
        elif api.name not in LISTS:
            said = asked.get(api.name, set()) | ELSEWHERE.get(api.name, set())
            missing = set(map(need_text, api.needs)) - said
            assert not missing, f"{api.name} has no request for it in tests/api/needs.py (or LISTS / ELSEWHERE above)"
            more = said - set(map(need_text, api.needs))
            assert not more, f"{api.name} has a request for it, but its line in protocol/apis.py does not say it"
