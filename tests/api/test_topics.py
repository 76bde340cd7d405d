"""CreateTopics, CreatePartitions, Metadata, DescribeTopicPartitions, log directories and DeleteTopics."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chronik.api import create_partitions, delete_topics
from chronik.api.shared.context import RequestContext, Services
from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerStatus
from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.topics import CreatePartitions, DeleteTopic
from chronik.metadata.names import OFFSETS_TOPIC
from chronik.metadata.records import ApplyResult
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from chronik.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from chronik.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from chronik.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from chronik.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from chronik.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from chronik.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsTopic,
)
from chronik.protocol.messages.fetch import FetchResponse
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from chronik.request_reply import ConnectedClient
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory
from tests.admin.factories import topic_admin
from tests.api import request_builders
from tests.api.rejecting_services import rejecting_services
from tests.groups.shared_image import OFFSETS_TOPIC_ID, SharedImage
from tests.raw import RawClient

DEADLINE_SECONDS = 60

UNNAMED = DeleteTopicState(name=None)
BY_BOTH = DeleteTopicState(name="both", topic_id=b"i" * 16)
NAME_OR_ID = "Specify either the name or the id of each topic"
TWICE = "The request names the topic more than once"

CONTEXT = RequestContext(6, "", cast(ConnectedClient, SimpleNamespace(number=1)))
REJECTED = ErrorCode.INVALID_TOPIC_EXCEPTION

TOPICS = 3000


def create(client: RawClient, *topics: CreatableTopic, validate_only: bool = False) -> list[tuple[str, ErrorCode]]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    answers = client.request(request, 7, CreateTopicsResponse).topics
    return [(answer.name, ErrorCode(answer.error_code)) for answer in answers]


def plain(name: str) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)


def assigned(name: str, *replicas: tuple[int, list[int]]) -> CreatableTopic:
    topic = plain(name)
    topic.assignments = [CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in replicas]
    return topic


def delete(client: RawClient, *topics: DeleteTopicState) -> list[ErrorCode]:
    answers = client.request(DeleteTopicsRequest(topics=list(topics)), 6, DeleteTopicsResponse).responses
    return [ErrorCode(answer.error_code) for answer in answers]


# CreateTopics


def test_validate_only_does_not_create_topic(client: RawClient) -> None:
    assert create(client, plain("validated"), validate_only=True) == [("validated", ErrorCode.NONE)]
    assert request_builders.describe_topic(client, "validated").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_duplicate_topic_name_is_rejected_once(client: RawClient) -> None:
    assert create(client, plain("twice"), plain("twice")) == [("twice", ErrorCode.INVALID_REQUEST)]


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (assigned("assigned", (0, [1]), (1, [1])), ErrorCode.NONE),
        (assigned("bad", (1, [1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("bad", (0, [1]), (0, [1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("bad", (0, [1, 1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("bad", (0, [])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("bad", (0, [77])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (CreatableTopic(name="bad", num_partitions=1, assignments=assigned("", (0, [1])).assignments),
         ErrorCode.INVALID_REQUEST),
    ],
)  # fmt: skip
def test_replica_assignments_are_applied_or_rejected(client: RawClient, topic: CreatableTopic, code: ErrorCode) -> None:
    assert create(client, topic) == [(topic.name, code)]
    if code is ErrorCode.NONE:
        assert [each.replica_nodes for each in request_builders.describe_topic(client, topic.name).partitions] == [
            [1],
            [1],
        ]


def test_contradictory_configs_are_rejected(client: RawClient) -> None:
    topic = plain("contradictory")
    topic.configs = [
        CreatableTopicConfig(name="min.compaction.lag.ms", value="2000"),
        CreatableTopicConfig(name="max.compaction.lag.ms", value="1000"),
    ]
    assert create(client, topic) == [("contradictory", ErrorCode.INVALID_CONFIG)]


@pytest.mark.parametrize(("size", "code"), [("100", ErrorCode.INVALID_CONFIG), ("1048576", ErrorCode.NONE)])
def test_segment_bytes_must_be_at_least_1_mib(
    client: RawClient, chronik_topic: str, size: str, code: ErrorCode
) -> None:
    topic = plain(f"segments-of-{size}")
    topic.configs = [CreatableTopicConfig(name="segment.bytes", value=size)]
    assert create(client, topic) == [(topic.name, code)]
    assert (
        request_builders.alter_configs(
            client, request_builders.TOPIC, chronik_topic, ("segment.bytes", request_builders.SET, size)
        )
        is code
    )


# CreatePartitions


@pytest.mark.chronik_topic(partitions=2)
def test_added_partitions_accept_records(client: RawClient, chronik_topic: str) -> None:
    def grow(count: int, *assignments: list[int], validate_only: bool = False, name: str = chronik_topic) -> ErrorCode:
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        if assignments:
            topic.assignments = [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=30_000, validate_only=validate_only)
        return ErrorCode(client.request(request, 3, CreatePartitionsResponse).results[0].error_code)

    assert grow(2) is ErrorCode.INVALID_PARTITIONS
    assert grow(1) is ErrorCode.INVALID_PARTITIONS
    assert grow(10_001) is ErrorCode.INVALID_PARTITIONS
    assert grow(3, [1], [1]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(3, [77]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(3, name="no-such") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert grow(4, validate_only=True) is ErrorCode.NONE
    assert len(request_builders.describe_topic(client, chronik_topic).partitions) == 2
    assert grow(3, [1]) is ErrorCode.NONE
    assert grow(4) is ErrorCode.NONE
    for partition in range(4):
        assert (
            request_builders.produce(
                client, chronik_topic, request_builders.batch(b"v"), partition=partition
            ).base_offset
            == 0
        )


# Metadata


def test_metadata_creates_topic_only_if_client_allows_it(client: RawClient) -> None:
    assert request_builders.describe_topic(client, "asked-for").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    created = request_builders.describe_topic(client, "asked-for", create=True)
    assert (created.error_code, len(created.partitions)) == (ErrorCode.NONE, 1)
    assert (
        request_builders.describe_topic(client, "not legal", create=True).error_code
        == ErrorCode.INVALID_TOPIC_EXCEPTION
    )


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_versions_10_and_11_reject_topic_ids(client: RawClient, chronik_topic: str, version: int) -> None:
    for topic in (MetadataRequestTopic(name=None), MetadataRequestTopic(name=chronik_topic, topic_id=b"i" * 16)):
        request = MetadataRequest(topics=[topic, MetadataRequestTopic(name=chronik_topic)])
        answers = client.request(request, version, MetadataResponse).topics
        assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_REQUEST] * 2


@pytest.mark.parametrize("version", [12, 13])
def test_metadata_finds_topics_by_id(client: RawClient, chronik_topic: str, version: int) -> None:
    topic_id = request_builders.describe_topic(client, chronik_topic).topic_id
    wanted = [MetadataRequestTopic(name=None, topic_id=each) for each in (topic_id, b"i" * 16)]
    found, missing = client.request(MetadataRequest(topics=wanted), version, MetadataResponse).topics
    assert (found.error_code, found.name, found.topic_id) == (ErrorCode.NONE, chronik_topic, topic_id)
    assert (missing.error_code, missing.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)


@pytest.mark.parametrize(("version", "everything"), [(0, []), (1, None), (13, None)])
def test_metadata_returns_all_topics_in_every_version(
    client: RawClient, chronik_topic: str, version: int, everything: list[MetadataRequestTopic] | None
) -> None:
    response = client.request(MetadataRequest(topics=everything), version, MetadataResponse)
    assert chronik_topic in {topic.name for topic in response.topics}
    if version > 0:
        assert client.request(MetadataRequest(topics=[]), version, MetadataResponse).topics == []


# DescribeCluster, DescribeTopicPartitions, DescribeLogDirs, AlterReplicaLogDirs


def test_describe_cluster_returns_brokers_and_controller(chronik_broker: Broker, client: RawClient) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    response = client.request(request, 2, DescribeClusterResponse)
    assert (response.error_code, response.controller_id) == (ErrorCode.NONE, 1)
    assert [(broker.broker_id, broker.port) for broker in response.brokers] == [(1, chronik_broker.port)]
    assert response.cluster_id
    assert response.cluster_authorized_operations > 0
    controllers = client.request(DescribeClusterRequest(endpoint_type=2), 2, DescribeClusterResponse)
    assert controllers.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_describe_topic_partitions_returns_pages(client: RawClient) -> None:
    for name, count in (("page-a", 3), ("page-b", 4)):
        create(client, CreatableTopic(name=name, num_partitions=count, replication_factor=1))
    wanted = [DescribeTopicPartitionsTopic(name=name) for name in ("page-b", "page-a", "page-c")]
    seen: list[tuple[str | None, int]] = []
    errors: dict[str | None, int] = {}
    cursor: Cursor | None = None
    pages = 0
    while pages == 0 or cursor is not None:
        request = DescribeTopicPartitionsRequest(topics=wanted, response_partition_limit=2, cursor=cursor)
        response = client.request(request, 0, DescribeTopicPartitionsResponse)
        seen += [(topic.name, each.partition_index) for topic in response.topics for each in topic.partitions]
        errors |= {topic.name: topic.error_code for topic in response.topics}
        cursor, pages = response.next_cursor, pages + 1
    assert seen == [("page-a", n) for n in range(3)] + [("page-b", n) for n in range(4)]
    assert errors == {"page-a": 0, "page-b": 0, "page-c": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert pages == 4


@pytest.mark.parametrize("version", [1, 4, 5])
def test_describe_log_dirs_returns_partition_sizes(
    chronik_broker: Broker, client: RawClient, chronik_topic: str, version: int
) -> None:
    request_builders.produce(client, chronik_topic, request_builders.batch(b"v" * 1000))
    some = [DescribableLogDirTopic(topic=chronik_topic, partitions=[0, 9])]
    for topics in (None, some, []):
        request = DescribeLogDirsRequest(topics=topics)
        (directory,) = client.request(request, version, DescribeLogDirsResponse).results
        assert directory.log_dir == str(chronik_broker.data_dir)
        sizes = {topic.name: [each.partition_size for each in topic.partitions] for topic in directory.topics}
        assert (chronik_topic in sizes) is (topics != [])
        if topics != []:
            assert len(sizes[chronik_topic]) == 1
            assert sizes[chronik_topic][0] > 1000


@pytest.mark.parametrize("version", [0, 1, 2])
def test_replica_can_only_be_moved_to_its_own_log_dir(
    chronik_broker: Broker, client: RawClient, chronik_topic: str, version: int
) -> None:
    here, elsewhere = str(chronik_broker.data_dir), str(chronik_broker.data_dir.parent)
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=here,
                topics=[
                    AlterReplicaLogDirTopic(name=chronik_topic, partitions=[0, 9]),
                    AlterReplicaLogDirTopic(name="no-such", partitions=[0]),
                ],
            ),
            AlterReplicaLogDir(path=elsewhere, topics=[AlterReplicaLogDirTopic(name=chronik_topic, partitions=[1])]),
        ]
    )
    results = client.request(request, version, AlterReplicaLogDirsResponse).results
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {
        result.topic_name: {each.partition_index: each.error_code for each in result.partitions} for result in results
    } == {chronik_topic: {0: ErrorCode.NONE, 9: unknown, 1: ErrorCode.LOG_DIR_NOT_FOUND}, "no-such": {0: unknown}}


# DeleteTopics


def test_topics_are_deleted_by_name_or_id(client: RawClient) -> None:
    create(client, plain("by-name"), plain("by-id"), plain("kept"))
    by_id = DeleteTopicState(name=None, topic_id=request_builders.describe_topic(client, "by-id").topic_id)
    kept = DeleteTopicState(name="kept")
    assert delete(client, DeleteTopicState(name="by-name"), by_id) == [ErrorCode.NONE] * 2
    assert delete(client, DeleteTopicState(name="by-name")) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert delete(client, by_id) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert delete(client, kept, kept) == [ErrorCode.INVALID_REQUEST]
    assert delete(client, DeleteTopicState(name="kept", topic_id=b"i" * 16)) == [ErrorCode.INVALID_REQUEST]
    assert delete(client, DeleteTopicState(name=None)) == [ErrorCode.INVALID_REQUEST]
    assert request_builders.describe_topic(client, "kept").error_code == ErrorCode.NONE


@pytest.mark.parametrize(("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
def test_disabled_topic_deletion_returns_error_of_the_version(
    chronik_broker_factory: BrokerFactory, version: int, code: ErrorCode
) -> None:
    broker = chronik_broker_factory(broker={"delete.topic.enable": False})
    broker.create_topic("kept")
    with RawClient(broker.bootstrap) as client:
        response = client.request(DeleteTopicsRequest(topic_names=["kept"]), version, DeleteTopicsResponse)
        assert response.responses[0].error_code == code
        assert request_builders.describe_topic(client, "kept").error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [12, 13])
def test_topic_deletion_fails_waiting_fetch(
    chronik_broker: Broker, client: RawClient, chronik_topic: str, version: int
) -> None:
    topic: str | bytes = chronik_topic
    if version >= 13:
        topic = request_builders.describe_topic(client, chronik_topic).topic_id
    waiting = request_builders.fetch_request((topic, 0, 0), min_bytes=1, max_wait_ms=30_000)
    client.send(waiting, version)
    with RawClient(chronik_broker.bootstrap) as other:
        assert delete(other, DeleteTopicState(name=chronik_topic)) == [ErrorCode.NONE]
    answer = client.receive(waiting, version, FetchResponse).responses[0].partitions[0]
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.error_code == unknown


def test_topic_recreated_under_load_keeps_acknowledged_records(
    chronik_broker_factory: BrokerFactory,
) -> None:
    broker = chronik_broker_factory(broker={"log.cleaner.backoff.ms": 10, "log.retention.check.interval.ms": 10})
    small = {"internal.segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.01"}
    configs = {"cleanup.policy": "compact,delete", **small}
    stop = threading.Event()
    faults: list[object] = []
    acknowledged: list[int] = []
    legal = {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_OUT_OF_RANGE}

    def write() -> None:
        with RawClient(broker.bootstrap) as client:
            while not stop.is_set():
                answer = request_builders.produce(client, "reborn", request_builders.batch(b"v" * 300))
                if answer.error_code == ErrorCode.NONE:
                    acknowledged.append(answer.base_offset)
                elif answer.error_code not in legal:
                    faults.append(answer)

    def read() -> None:
        with RawClient(broker.bootstrap) as client:
            while not stop.is_set():
                request = request_builders.fetch_request(("reborn", 0, 0), min_bytes=1, max_wait_ms=20)
                answer = client.request(request, 12, FetchResponse).responses[0].partitions[0]
                if answer.error_code not in legal:
                    faults.append(answer)

    threads = [threading.Thread(target=work) for work in (write, write, read, read)]
    broker.create_topic("reborn", configs=configs)
    for thread in threads:
        thread.start()
    with RawClient(broker.bootstrap) as client:
        for _ in range(15):
            _wait_for_more(acknowledged)
            assert delete(client, DeleteTopicState(name="reborn")) == [ErrorCode.NONE]
            broker.create_topic("reborn", configs=configs)
        _wait_for_more(acknowledged)
        stop.set()
        for thread in threads:
            thread.join(DEADLINE_SECONDS)
        end = request_builders.list_offset(client, "reborn", -1).offset
    assert not faults
    assert end == max(acknowledged[-2:]) + 1  # one of two writers wrote the last record
    broker.restart()
    with RawClient(broker.bootstrap) as client:
        assert request_builders.list_offset(client, "reborn", -1).offset == end
    _wait_until_deleted(broker)
    assert not (broker.data_dir / "unknown").exists()


def _wait_for_more(acknowledged: list[int]) -> None:
    deadline, before = time.monotonic() + DEADLINE_SECONDS, len(acknowledged)
    while len(acknowledged) < before + 20:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def _wait_until_deleted(broker: Broker) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(list((broker.data_dir / "topics").iterdir())) > 1 or any((broker.data_dir / "deleted").iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("topic", [UNNAMED, BY_BOTH])
@pytest.mark.parametrize(("count", "message"), [(1, NAME_OR_ID), (2, TWICE), (3, TWICE)])
def test_duplicate_topic_error_precedes_invalid_name_error(topic: DeleteTopicState, count: int, message: str) -> None:
    request = DeleteTopicsRequest(topics=[topic] * count)
    context: Any = SimpleNamespace(version=6, usage=None)
    (result,) = asyncio.run(delete_topics.handle(rejecting_services(), request, context)).responses
    assert (result.name, result.topic_id) == (topic.name, topic.topic_id)
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, message)


def test_delete_topic_enable_is_read_once_per_request(monkeypatch: pytest.MonkeyPatch) -> None:
    node_services = rejecting_services()
    reads: list[str] = []
    monkeypatch.setattr(node_services.configs, "broker_flag", lambda name: not reads.append(name))  # type: ignore[func-returns-value]
    request = DeleteTopicsRequest(topic_names=[f"t{number}" for number in range(1_200)])
    responses = asyncio.run(
        delete_topics.handle(node_services, request, SimpleNamespace(version=1, usage=None))  # type: ignore[arg-type]
    ).responses
    assert {result.error_code for result in responses} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert reads == ["delete.topic.enable"]


class RecordingStore:
    """A store that records commands without applying them."""

    def __init__(self, *, alone: bool) -> None:
        shared = SharedImage()
        self.image = shared.image
        for broker in list(self.image.brokers.values()):
            shared.apply(UpdateBrokerStatus(broker.id, BrokerStatus.ONLINE, broker.epoch))
        self.is_shared = not alone
        self.done: list[str] = []

    async def propose(self, command: Command) -> ApplyResult:
        assert isinstance(command, DeleteTopic | CreatePartitions)
        verb = "delete" if isinstance(command, DeleteTopic) else "enlarge"
        self.done.append(f"{verb} {self.image.topics_by_id[command.topic_id].name}")
        return ApplyResult()


def services_of(recorder: RecordingStore) -> Services:
    return cast(Services, SimpleNamespace(authorizer=None, topics=topic_admin(cast(MetadataStore, recorder))))


def delete_on_node(services: Services, *wanted: DeleteTopicState) -> list[int]:
    request = DeleteTopicsRequest(topics=list(wanted))
    return [each.error_code for each in asyncio.run(delete_topics.handle(services, request, CONTEXT)).responses]


def enlarge(services: Services, *names: str, validate_only: bool = False) -> list[int]:
    topics = [CreatePartitionsTopic(name=name, count=200, assignments=None) for name in names]
    request = CreatePartitionsRequest(topics=topics, validate_only=validate_only)
    return [each.error_code for each in asyncio.run(create_partitions.handle(services, request, CONTEXT)).results]


@pytest.mark.parametrize(
    "wanted", [DeleteTopicState(name=OFFSETS_TOPIC), DeleteTopicState(name=None, topic_id=OFFSETS_TOPIC_ID)]
)
def test_cluster_rejects_deletion_of_internal_topic(wanted: DeleteTopicState) -> None:
    recorder = RecordingStore(alone=False)
    services = services_of(recorder)
    assert delete_on_node(services, wanted, DeleteTopicState(name="t")) == [REJECTED, ErrorCode.NONE]
    assert recorder.done == ["delete t"]


@pytest.mark.parametrize("validate_only", [False, True])
def test_cluster_rejects_new_partitions_of_internal_topic(validate_only: bool) -> None:
    recorder = RecordingStore(alone=False)
    services = services_of(recorder)
    assert enlarge(services, OFFSETS_TOPIC, "t", validate_only=validate_only) == [REJECTED, ErrorCode.NONE]
    assert recorder.done == ([] if validate_only else ["enlarge t"])


def test_standalone_node_allows_changes_of_internal_topic() -> None:
    recorder = RecordingStore(alone=True)
    services = services_of(recorder)
    assert enlarge(services, OFFSETS_TOPIC) == [ErrorCode.NONE]
    assert delete_on_node(services, DeleteTopicState(name=OFFSETS_TOPIC)) == [ErrorCode.NONE]
    assert recorder.done == [f"enlarge {OFFSETS_TOPIC}", f"delete {OFFSETS_TOPIC}"]


def create_in_batches(broker: Broker, names: list[str], per_request: int) -> list[int]:
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
        codes = [
            code
            for chunk in pool.map(lambda chunk: create_in_batches(broker, chunk, per_request), chunks)
            for code in chunk
        ]
    assert codes == [ErrorCode.NONE] * TOPICS
    topics = topics_of(broker)
    assert sorted(name or "" for name in topics) == names
    assert len(set(topics.values())) == TOPICS
    broker.restart()
    assert topics_of(broker) == topics
    broker.kill()
    broker.start()
    assert topics_of(broker) == topics
