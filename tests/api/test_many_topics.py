"""Creation of 3,000 topics by one request or by many threads, and their survival of a restart."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from chronik.protocol.messages.metadata import MetadataRequest, MetadataResponse
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory
from tests.raw import RawClient

TOPICS = 3000


def create(broker: Broker, names: list[str], per_request: int) -> list[int]:
    codes = []
    with RawClient(broker.bootstrap) as client:
        for first in range(0, len(names), per_request):
            request = CreateTopicsRequest(
                topics=[
                    CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                    for name in names[first : first + per_request]
                ]
            )
            codes += [topic.error_code for topic in client.request(request, 7, CreateTopicsResponse).topics]
    return codes


def topics_of(broker: Broker) -> dict[str | None, bytes]:
    with RawClient(broker.bootstrap) as client:
        response = client.request(MetadataRequest(topics=None), 12, MetadataResponse)
    assert all(topic.error_code == ErrorCode.NONE for topic in response.topics)
    assert all([partition.leader_id for partition in topic.partitions] == [1] for topic in response.topics)
    return {topic.name: topic.topic_id for topic in response.topics}


@pytest.mark.parametrize("threads", [1, 10, 100])
def test_thousands_of_topics_are_created_and_survive_restart(
    chronik_broker_factory: BrokerFactory, threads: int
) -> None:
    broker = chronik_broker_factory()
    names = [f"topic-{number:04d}" for number in range(TOPICS)]
    chunks = [names[thread::threads] for thread in range(threads)]
    per_request = TOPICS if threads == 1 else 1
    with ThreadPoolExecutor(threads) as pool:
        codes = [code for chunk in pool.map(lambda chunk: create(broker, chunk, per_request), chunks) for code in chunk]
    assert codes == [ErrorCode.NONE] * TOPICS
    topics = topics_of(broker)
    assert sorted(name or "" for name in topics) == names
    assert len(set(topics.values())) == TOPICS
    broker.restart()
    assert topics_of(broker) == topics
    broker.kill()
    broker.start()
    assert topics_of(broker) == topics
