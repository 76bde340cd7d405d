from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from chronik.client.configs import BROKER_RESOURCE, ConfigTarget, describe_configs
from chronik.client.errors import ClientError
from chronik.errors import ConfigError
from chronik.protocol.errors import KafkaError
from chronik.testing import Broker, BrokerFailed
from chronik.testing.cluster import ClusterNode
from chronik.testing.plugin import BrokerFactory, ClusterFactory


def produce(broker: Broker, topic: str, value: bytes, **config: object) -> str | None:
    """Return the error that librdkafka reports for a record: None if it was acknowledged."""
    reports: list[str | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, **config})
    producer.produce(topic, value, on_delivery=lambda error, _: reports.append(error.name() if error else None))
    producer.flush(30)
    (report,) = reports
    return report


def test_broker_works_without_pytest() -> None:
    with Broker(flush="os") as broker:
        data_dir = broker.data_dir
        assert broker.bootstrap == f"127.0.0.1:{broker.port}"
        broker.create_topic("t")
        assert produce(broker, "t", b"v") is None
        (record,) = broker.records("t")
        assert (record.topic, record.partition, record.offset, record.value) == ("t", 0, 0, b"v")
        assert "answers Kafka clients" in broker.log
        assert data_dir.is_dir()
    assert not broker.is_running
    assert not data_dir.exists()


def test_given_directory_is_kept(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        broker.create_topic("t")
    with Broker(tmp_path) as broker:
        assert broker.records("t") == []


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_restart_keeps_port_and_data(chronik_broker_factory: BrokerFactory, how: str) -> None:
    broker = chronik_broker_factory()
    port, pid = broker.port, broker.pid
    broker.create_topic("t")
    assert produce(broker, "t", b"kept") is None
    getattr(broker, how)()
    assert not broker.is_running
    with pytest.raises(ClientError):
        broker.records("t")
    broker.restart()
    assert broker.port == port
    assert broker.pid != pid
    assert [record.value for record in broker.records("t")] == [b"kept"]


def test_restart_stops_a_running_broker_first(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    broker.restart()
    assert broker.log.count("answers Kafka clients") == 2
    assert broker.log.count("stopping") == 1


def test_configure_applies_at_next_start(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory(2, broker={"num.partitions": 2, "log.retention.hours": 1})
    cluster[2].configure(broker={"num.partitions": 3})
    assert default_partition_count(cluster[2]) == "2"
    cluster[2].restart()
    cluster.wait_until_ready()
    assert [default_partition_count(cluster[node_id]) for node_id in (1, 2)] == ["2", "3"]
    assert cluster[2].config["broker"] == {"num.partitions": 3, "log.retention.hours": 1}


def default_partition_count(node: ClusterNode) -> str | None:
    resource = ConfigTarget(BROKER_RESOURCE, str(node.node_id))
    with node.cluster() as cluster:
        ((config,),) = describe_configs(cluster, [resource], ["num.partitions"]).values()
    return config.value


def test_invalid_configure_call_changes_nothing(tmp_path: Path) -> None:
    broker = Broker(tmp_path, flush="os")
    for wrong in ({"flush": "never"}, {"flsh": "os"}):
        with pytest.raises(ConfigError):
            broker.configure(**wrong)
    assert broker.config == {"flush": "os"}


def test_injected_error_is_returned_given_number_of_times(chronik_broker: Broker, chronik_topic: str) -> None:
    chronik_broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    assert produce(chronik_broker, chronik_topic, b"v") is None
    outcomes = [seen.outcome for seen in chronik_broker.last_requests(1000) if seen.api == "Produce"]
    assert outcomes[-3:] == ["NOT_LEADER_OR_FOLLOWER", "NOT_LEADER_OR_FOLLOWER", "ok"]
    assert [record.value for record in chronik_broker.records(chronik_topic)] == [b"v"]


def test_faults_of_one_api_apply_in_order(chronik_broker: Broker, chronik_topic: str) -> None:
    chronik_broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
    chronik_broker.fail("Produce", "MESSAGE_TOO_LARGE")
    reports = [produce(chronik_broker, chronik_topic, b"v") for _ in range(3)]
    assert reports == ["TOPIC_AUTHORIZATION_FAILED", "MSG_SIZE_TOO_LARGE", None]


def test_fault_without_count_lasts_until_cleared(chronik_broker: Broker, chronik_topic: str) -> None:
    chronik_broker.fail("Produce", "MESSAGE_TOO_LARGE", times=None)
    assert [produce(chronik_broker, chronik_topic, b"v") for _ in range(3)] == 3 * ["MSG_SIZE_TOO_LARGE"]
    chronik_broker.clear_faults()
    assert produce(chronik_broker, chronik_topic, b"v") is None


def test_delayed_request_is_answered_correctly(chronik_broker: Broker, chronik_topic: str) -> None:
    chronik_broker.delay("ListOffsets", 0.3, times=1)
    start, began = time.time(), time.monotonic()
    assert chronik_broker.records(chronik_topic) == []
    assert time.monotonic() - began >= 0.29  # the loop's timer counts milliseconds and may be one early
    asked = [seen for seen in chronik_broker.last_requests() if seen.api == "ListOffsets" and seen.answered_at > start]
    assert [seen.milliseconds >= 290 for seen in asked] == [True, False]


def test_delay_and_error_can_be_combined(chronik_broker: Broker, chronik_topic: str) -> None:
    chronik_broker.delay("Produce", 0.2)
    chronik_broker.fail("Produce", "MESSAGE_TOO_LARGE")
    began = time.monotonic()
    assert produce(chronik_broker, chronik_topic, b"v") == "MSG_SIZE_TOO_LARGE"
    assert time.monotonic() - began >= 0.2


def test_paused_broker_does_not_respond_until_resumed(chronik_broker: Broker, chronik_topic: str) -> None:
    chronik_broker.pause()
    with pytest.raises(KafkaException, match=r"_TRANSPORT|_TIMED_OUT"):
        AdminClient({"bootstrap.servers": chronik_broker.bootstrap, "log_level": 0}).list_topics(timeout=0.5)
    with pytest.raises(BrokerFailed, match="paused"):
        chronik_broker.last_requests()
    chronik_broker.resume()
    assert chronik_broker.records(chronik_topic) == []


def test_last_requests_contain_client_api_and_outcome(chronik_broker: Broker, chronik_topic: str) -> None:
    began = time.time()
    chronik_broker.fail("Fetch", "UNKNOWN_SERVER_ERROR")
    produce(chronik_broker, chronik_topic, b"v", **{"client.id": "the-client"})
    with pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR"):
        chronik_broker.records(chronik_topic)
    *_, last = chronik_broker.last_requests()
    assert (last.api, last.outcome, last.client_id) == ("Fetch", "UNKNOWN_SERVER_ERROR", "chronik-testing")
    assert began - 1 < last.answered_at < time.time() + 1
    assert ("the-client", "Produce", "ok") in {
        (seen.client_id, seen.api, seen.outcome) for seen in chronik_broker.last_requests(1000)
    }
    assert len(chronik_broker.last_requests(2)) == 2
    assert chronik_broker.last_requests(0) == []
    assert "api=Fetch" not in chronik_broker.log, "requests are recorded but not logged"


def test_broker_can_be_configured_not_to_record_requests(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.records_requests = False
    with broker:
        AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=10)
        assert broker.last_requests() == []


def test_invalid_fault_arguments_are_rejected(chronik_broker: Broker) -> None:
    with pytest.raises(ValueError, match="unknown API 'Produec'"):
        chronik_broker.fail("Produec", "NOT_LEADER_OR_FOLLOWER")
    with pytest.raises(ValueError, match="unknown Kafka error code 'NOT_LEADER'"):
        chronik_broker.fail("Produce", "NOT_LEADER")
    with pytest.raises(ValueError, match="times = 0"):
        chronik_broker.delay("Produce", 1, times=0)
    with pytest.raises(ValueError, match="negative delay: -1 s"):
        chronik_broker.delay("Produce", -1)


def test_operations_on_stopped_broker_raise_broker_failed(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    with pytest.raises(BrokerFailed, match="never started"):
        _ = broker.bootstrap
    with broker:
        with pytest.raises(BrokerFailed, match="running already"):
            broker.start()
        broker.kill()
        with pytest.raises(BrokerFailed, match="not running"):
            broker.clear_faults()
