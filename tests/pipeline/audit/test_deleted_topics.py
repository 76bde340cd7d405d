"""Planning of an audit while topics are deleted: the remaining topics are audited."""

from __future__ import annotations

import pytest

from chronik.client.admin import delete_topics, list_topics
from chronik.client.cluster import ClusterClient
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.pipeline.audit import audit, partition_plan
from chronik.pipeline.spark.tasks import run_locally
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.metadata import MetadataResponseTopic
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory


@pytest.fixture
def broker(chronik_broker_factory: BrokerFactory) -> Broker:
    started = chronik_broker_factory()
    started.create_topic("stays", 2)
    with started.cluster() as client:
        Producer(client).send("stays", [OutgoingRecord(b"%d" % number, b"%d" % number) for number in range(100)])
    return started


class DeletingTopicLister:
    """A replacement for `list_topics` that deletes the next of `doomed` after each call."""

    def __init__(self, broker: Broker, doomed: list[str]) -> None:
        self.doomed, self.calls = doomed, 0
        for name in doomed:
            broker.create_topic(name, 2)

    def __call__(self, cluster: ClusterClient) -> list[MetadataResponseTopic]:
        self.calls += 1
        found = list_topics(cluster)
        if self.doomed:
            delete_topics(cluster, [self.doomed.pop()])
        return found


def test_topics_deleted_during_planning_are_skipped(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic_lister = DeletingTopicLister(broker, ["one", "another"])
    monkeypatch.setattr(partition_plan, "list_topics", topic_lister)
    report = audit([broker.data_dir], bootstrap=broker.bootstrap, tasks=run_locally)
    assert topic_lister.calls == 3
    assert report.is_clean, report.to_text()
    assert (report.topics, report.partitions, report.records) == (1, 2, 100)


def test_planning_is_retried_when_topic_becomes_unknown(broker: Broker) -> None:
    broker.fail("DescribeConfigs", "UNKNOWN_TOPIC_OR_PARTITION", times=1)
    report = audit([broker.data_dir], bootstrap=broker.bootstrap, tasks=run_locally)
    assert report.is_clean, report.to_text()
    assert report.records == 100


def test_planning_retries_are_limited(broker: Broker) -> None:
    broker.fail("DescribeConfigs", "UNKNOWN_TOPIC_OR_PARTITION", times=None)
    with pytest.raises(KafkaError) as raised:
        audit([broker.data_dir], bootstrap=broker.bootstrap, tasks=run_locally)
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    requests = [each for each in broker.last_requests(100) if each.api == "DescribeConfigs"]
    assert len(requests) == partition_plan.LIST_ATTEMPTS_MAX


def test_other_broker_errors_are_not_retried(broker: Broker) -> None:
    broker.fail("DescribeConfigs", "TOPIC_AUTHORIZATION_FAILED", times=1)
    with pytest.raises(KafkaError) as raised:
        audit([broker.data_dir], bootstrap=broker.bootstrap, tasks=run_locally)
    assert raised.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
