"""Attacks with malicious topic names and with many partitions."""

from __future__ import annotations

from typing import Final

from chronik.client.admin import NewTopic, create_topics, delete_topics
from chronik.client.cluster import ClusterClient
from chronik.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.abuse.attack import Attack, AttackTarget
from tests.api.request_builders import batch, produce_request

FORGED: Final = "x\n2026-01-01 00:00:00,000 CRITICAL chronik.node: all is lost \x1b[31m"


def forged_lines(target: AttackTarget) -> None:
    """Produce with acks=0 to topics whose names forge log lines. The broker closes the connection and logs the name."""
    for number in range(target.count(20, 1_000)):
        with target.connect() as client:
            client.send(produce_request(f"{FORGED}{number}", batch(b"v"), acks=0), 9)
            assert client.wait_for_close()
    lines = target.victim.log.splitlines()
    assert not any("\x1b" in line or line.startswith("2026-01-01") for line in lines), "a line was forged"


def forged_names_everywhere(target: AttackTarget) -> None:
    with target.connect() as client:
        for number in range(target.count(20, 500)):
            name = f"{FORGED}{number}"
            client.request(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12, MetadataResponse)
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            client.request(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 7, CreateTopicsResponse)


def large_topics_in_a_loop(target: AttackTarget) -> None:
    with ClusterClient(target.victim.bootstrap, client_id="abuse") as client:
        for number in range(target.count(1, 5)):
            create_topics(client, [NewTopic(f"large-{number}", target.count(500, 10_000), 1)])
            delete_topics(client, [f"large-{number}"])


ATTACKS: Final = (
    Attack("forged-lines", "1,000 topic names that contain forged log lines", forged_lines, quick=True),
    Attack("forged-names", "500 such names in Metadata and CreateTopics", forged_names_everywhere),
    Attack(
        "large-topics-in-a-loop", "a topic of 10,000 partitions created and deleted, five times", large_topics_in_a_loop
    ),
)
