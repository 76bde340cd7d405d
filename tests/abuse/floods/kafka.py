"""Floods of the Kafka port: many connections that repeat expensive requests, from one address or 120."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient
from chronik.client.groups import commit_offsets
from chronik.client.records import TopicPartition
from chronik.client.security import AclBinding, add_acls, set_password
from chronik.protocol.errors import ErrorCode
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.protocol.schema_ids import SCHEMAS_PER_BATCH_MAX
from chronik.security.sasl.outcomes import PLAIN
from chronik.security.sasl.scram_keys import ITERATIONS_MIN, MECHANISMS_BY_NAME
from tests.abuse.attack import SINGLE_NODE, Attack, AttackTarget, ProbeOptions, prepare_nothing
from tests.abuse.authentication.attacked_listener import PROBE_USER, attacked_address
from tests.abuse.budget import MIB, AttackBudget
from tests.abuse.floods import flood_process
from tests.abuse.floods.attacker import FloodSpec
from tests.abuse.floods.requests import (
    LARGE_GROUP,
    LARGE_TOPIC,
    VALIDATED_PARTITIONS,
    VALIDATED_TOPIC,
    encode_unknown_schemas,
    topic_name,
)
from tests.api.request_builders import produce

BUDGET: Final = AttackBudget(
    blocked_ms=1_000.0,  # pings have the same maximum latency as the other honest requests
    memory_bytes=200 * MIB,
    memory_per_request=0.0,
    longest_ms=1_000.0,
)
LONG_IDS_BUDGET: Final = AttackBudget(
    blocked_ms=BUDGET.blocked_ms,
    memory_bytes=BUDGET.memory_bytes,
    memory_per_request=0.0,
    longest_ms=BUDGET.longest_ms,
    disk_bytes=16 * MIB,  # rejected ids leave nothing behind
)
HONEST: Final = ProbeOptions(acks=-1, fetches=True)

IDS_FEW, IDS = 2_000, 20_000
TOPICS_FEW, TOPICS = 200, 3_000
PARTITIONS_FEW, PARTITIONS = 500, 10_000
GROUPS_FEW, GROUPS = 200, 3_000
ACLS_FEW, ACLS = 500, 5_000
LONG_IDS_SECONDS_MAX: Final = 60.0
"""Maximum duration, for a busy machine: 20,000 ids take 20 s."""

ACLS_PER_REQUEST: Final = 500

INTRUDER: Final = "intruder"
PASSWORD: Final = "intruder"
AUTHORIZER: Final = {
    "authorizer.class.name": "standard",
    "super.users": f"User:ANONYMOUS;User:{PROBE_USER}",
}
LITERAL, ALLOW = 3, 3

AttackFunction = Callable[[AttackTarget], None]


# Preparation


def create_transactional_ids(target: AttackTarget) -> None:
    """Create transactional ids; in a cluster each node coordinates a third of them."""
    flood_process.send_numbered_requests(target, "short-ids", target.count(IDS_FEW, IDS))


def create_topics_to_list(target: AttackTarget) -> None:
    with ClusterClient(target.victim.bootstrap, client_id="stage") as client:
        names = [topic_name(number) for number in range(target.count(TOPICS_FEW, TOPICS))]
        for first in range(0, len(names), 500):
            create_topics(client, [NewTopic(name, 1, 1) for name in names[first : first + 500]])


def create_large_topic(target: AttackTarget) -> None:
    with ClusterClient(target.victim.bootstrap, client_id="stage") as client:
        create_topics(client, [NewTopic(LARGE_TOPIC, target.count(PARTITIONS_FEW, PARTITIONS), 1)])


def create_validated_topic(target: AttackTarget) -> None:
    configs = {"confluent.value.schema.validation": "true"}
    target.victim.create_topic(VALIDATED_TOPIC, VALIDATED_PARTITIONS, configs)
    with target.connect_to_leader(VALIDATED_TOPIC) as client:
        rejected = produce(client, VALIDATED_TOPIC, encode_unknown_schemas(SCHEMAS_PER_BATCH_MAX))
        assert rejected.error_code == ErrorCode.INVALID_RECORD, rejected


def create_groups(target: AttackTarget) -> None:
    with ClusterClient(target.victim.bootstrap, client_id="stage") as client:
        create_topics(client, [NewTopic(LARGE_TOPIC, 1, 1)])
        client.retry(lambda: client.leader_id(TopicPartition(LARGE_TOPIC, 0)))
        client.retry(lambda: client.coordinator("stage"))
    flood_process.send_numbered_requests(target, "groups", target.count(GROUPS_FEW, GROUPS))


def create_large_group(target: AttackTarget) -> None:
    create_large_topic(target)
    count = target.count(PARTITIONS_FEW, PARTITIONS)
    with ClusterClient(target.victim.bootstrap, client_id="stage") as client:
        for first in range(0, count, 1_000):
            partitions = range(first, min(count, first + 1_000))
            commit_offsets(client, LARGE_GROUP, {TopicPartition(LARGE_TOPIC, index): 1 for index in partitions})


def create_acls(target: AttackTarget) -> None:
    bindings = [
        AclBinding(AclResourceType.TOPIC, topic_name(number), LITERAL, "User:reader", "*", AclOperation.READ, ALLOW)
        for number in range(target.count(ACLS_FEW, ACLS))
    ]
    with ClusterClient(target.victim.bootstrap, client_id="stage") as client:
        for first in range(0, len(bindings), ACLS_PER_REQUEST):
            add_acls(client, bindings[first : first + ACLS_PER_REQUEST])


def create_user_without_acls(target: AttackTarget) -> None:
    """Create everything that the requests list, and a user that may see none of it."""
    for prepare in (create_transactional_ids, create_topics_to_list, create_large_group, create_acls):
        prepare(target)
    with ClusterClient(target.victim.bootstrap, client_id="stage") as client:
        set_password(client, INTRUDER, PASSWORD, list(MECHANISMS_BY_NAME), ITERATIONS_MIN)


# Floods


def flood_nodes(
    kinds: list[str], sources: int, connections: int = 200, few: int = 0, full: int = 0, **more: Any
) -> AttackFunction:
    """Return a strike that floods every node, with `few` or `full` names in a request."""

    def strike(target: AttackTarget) -> None:
        addresses = [(address.host, address.port) for address in map(attacked_address, target.nodes)]
        spec = FloodSpec(
            kinds,
            addresses,
            connections=target.count(connections // 5, connections),
            sources=sources,
            seconds=target.count(3, 12),
            names=target.count(few, full),
            **more,
        )
        done = flood_process.run_flood(target, spec)
        assert done.opened, "the attacker opened no connection"

    return strike


FloodKind = tuple[str, str, AttackFunction, int, int, int]

KINDS: Final[tuple[FloodKind, ...]] = (
    ("list-transactions-pattern", "ListTransactions with the pattern (x*)*(x*)*y", create_transactional_ids, 200, 0, 0),
    (
        "list-transactions",
        "ListTransactions of 20,000 ids (a third of them on each node of a cluster)",
        create_transactional_ids,
        200,
        0,
        0,
    ),
    ("metadata-unknown", "Metadata of 20,000 unknown topics", prepare_nothing, 100, 20_000, 20_000),
    ("metadata-all", "Metadata of all of 3,000 topics", create_topics_to_list, 200, 0, 0),
    ("describe-configs", "DescribeConfigs of 3,000 topics", create_topics_to_list, 200, TOPICS_FEW, TOPICS),
    ("list-groups", "ListGroups of 3,000 groups", create_groups, 200, 0, 0),
    ("describe-groups", "DescribeGroups of 3,000 groups", create_groups, 200, GROUPS_FEW, GROUPS),
    ("describe-transactions", "DescribeTransactions of 20,000 ids", create_transactional_ids, 200, IDS_FEW, IDS),
    ("describe-log-dirs", "DescribeLogDirs of 10,000 partitions", create_large_topic, 200, 0, 0),
    ("list-offsets", "ListOffsets of 10,000 partitions", create_large_topic, 200, PARTITIONS_FEW, PARTITIONS),
    ("offset-fetch", "OffsetFetch of a group with 10,000 offsets", create_large_group, 200, 0, 0),
)
"""Name, description, stage, connections to each node, and the names in a request: few and full."""

ALL_KINDS: Final = [kind for kind, *_ in KINDS]
QUICK: Final = frozenset({("list-transactions-pattern", 120), ("metadata-unknown", 1)})


def sources_label(sources: int) -> str:
    return "1-address" if sources == 1 else f"{sources}-addresses"


def _attacks() -> Iterator[Attack]:
    yield Attack(
        "flood-unknown-schemas",
        "8 connections to each node repeat batches whose records name 1,000 unknown schema ids",
        flood_nodes(["unknown-schemas"], 1, 8, SCHEMAS_PER_BATCH_MAX, SCHEMAS_PER_BATCH_MAX),
        create_validated_topic,
        quick=True,
        budget=BUDGET,
        probe=HONEST,
    )
    for sources in (1, flood_process.MANY_SOURCES):
        origin = "one address" if sources == 1 else f"{sources} addresses"
        for kind, what, prepare, connections, few, full in KINDS:
            yield Attack(
                f"flood-{kind}-{sources_label(sources)}",
                f"{connections} connections to each node from {origin} repeat {what}",
                flood_nodes([kind], sources, connections, few, full),
                prepare,
                quick=(kind, sources) in QUICK,
                budget=BUDGET,
                probe=HONEST,
            )
        yield Attack(
            f"flood-describe-acls-{sources_label(sources)}",
            f"200 connections to each node from {origin} repeat DescribeAcls of 5,000 ACLs",
            flood_nodes(["describe-acls"], sources),
            create_acls,
            config={"broker": AUTHORIZER},
            budget=BUDGET,
            probe=HONEST,
        )
        yield Attack(
            f"flood-without-acls-{sources_label(sources)}",
            f"200 connections to each node from {origin} send all of these requests as a user without ACLs",
            flood_nodes(
                [*ALL_KINDS, "describe-acls"], sources, few=2_000, full=20_000, user=INTRUDER, password=PASSWORD
            ),
            create_user_without_acls,
            quick=sources == 1,
            config={"broker": AUTHORIZER},
            protocol="SASL_PLAINTEXT",
            mechanism=PLAIN,
            budget=BUDGET,
            probe=HONEST,
        )
        yield Attack(
            f"flood-long-ids-{sources_label(sources)}",
            f"InitProducerId of 20,000 transactional ids of 32 kB on each node, from {origin}",
            long_ids(sources),
            quick=sources == 1,
            budget=LONG_IDS_BUDGET,
            probe=HONEST,
        )


def long_ids(sources: int) -> AttackFunction:
    def strike(target: AttackTarget) -> None:
        addresses = [(address.host, address.port) for address in map(attacked_address, target.nodes)]
        requests = target.count(
            1_000 if target.kind == SINGLE_NODE else 3_000, IDS if target.kind == SINGLE_NODE else 3 * IDS
        )
        spec = FloodSpec(
            ["long-ids"], addresses, connections=20, sources=sources, seconds=LONG_IDS_SECONDS_MAX, requests=requests
        )
        flood_process.run_flood(target, spec)

    return strike


ATTACKS: Final = tuple(_attacks())
