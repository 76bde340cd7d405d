"""Produce to topics that require registered schemas: real producers, each strategy, and stale metadata images."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from chronik.api import produce
from chronik.api.shared.context import RequestContext, Services
from chronik.broker.requests import schema_validation
from chronik.broker.requests.decompression import BatchDecompressor
from chronik.broker.requests.produced_records import ProduceRules, SubjectNameStrategy, ValidatedRecords
from chronik.broker.requests.rejected_batches import RejectedBatches
from chronik.broker.requests.schema_validation import SchemaValidator
from chronik.clock import ManualClock
from chronik.configs.keys import SUBJECT_NAME_STRATEGIES
from chronik.log.partition_log import AppendInfo
from chronik.log.producer_state import ProducerStateManager
from chronik.metadata.commands.schemas import DeleteSchemaVersions, RegisterSchema
from chronik.protocol.compression import Codec
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.message_set import convert_to_message_set
from chronik.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from chronik.protocol.records import Record, encode_batch
from chronik.request_reply import ConnectedClient
from tests.api import request_builders
from tests.api.authorizing_node import AuthorizingNode
from tests.metadata.registry_world import RegistryWorld
from tests.raw import RawClient

ORDER = '{"type":"record","name":"Order","namespace":"shop","fields":[]}'
GUID = UUID("89791762-2336-4186-9674-299b90a802e2")


def framed(schema_id: int, payload: bytes = b"payload") -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + payload


# --- a leader whose image may be stale ---


class LeaderReplica:
    """A leader replica of a topic that requires registered schemas, which stores the values of its records."""

    topic_id, topic_name, index = b"id", "orders", 0
    leader_epoch, has_enough_replicas = 3, True
    log = SimpleNamespace(producers=ProducerStateManager(), log_start_offset=0)
    uncommitted = has_followers = None

    def __init__(self, strategy: SubjectNameStrategy) -> None:
        self.produce_rules = ProduceRules(max_message_bytes=1 << 20, value_schemas=strategy)
        self.appended = 0

    def append(self, incoming: ValidatedRecords) -> AppendInfo:
        self.appended += 1
        return AppendInfo(0, 0, -1, 0)

    def is_committed(self, offset: int) -> bool:
        return True


class FollowerStore:
    """A metadata store whose image lags behind until a read barrier."""

    is_shared = True

    def __init__(self, world: RegistryWorld, arriving: RegisterSchema | None, *, has_majority: bool = True) -> None:
        self.world = world
        self.arriving = arriving
        self.has_majority = has_majority
        self.barriers = 0

    async def read_barrier(self, seconds: float) -> None:
        self.barriers += 1
        if not self.has_majority:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        if self.arriving is not None:
            self.world.accept(self.arriving)


def produce_to_follower(
    store: FollowerStore, value: bytes, strategy: SubjectNameStrategy = SubjectNameStrategy.TOPIC
) -> tuple[PartitionProduceResponse, int]:
    """Produce a record. Return the response and the number of appended batches."""
    replica, image = LeaderReplica(strategy), store.world.image
    services = SimpleNamespace(
        authorizer=None,
        image=SimpleNamespace(
            schemas=image.schemas, brokers={}, topics={}, topics_by_id={b"id": SimpleNamespace(internal=False)}
        ),
        clock=ManualClock(),
        is_fenced=lambda: False,
        rejected_batches=RejectedBatches(ManualClock()),
        replicas=SimpleNamespace(get_leader=lambda *_: replica),
        store=store,
        decompressor=BatchDecompressor(),
        schema_validator=SchemaValidator(),
    )

    async def run() -> ProduceResponse | None:
        request = request_builders.produce_request("orders", request_builders.batch(value))
        context = RequestContext(9, "client", ConnectedClient("host", 1, 1))
        return await produce.handle(cast(Services, services), request, context)

    response = asyncio.run(run())
    assert response is not None
    return response.responses[0].partition_responses[0], replica.appended


def test_schema_registered_on_another_node_is_accepted_after_read_barrier() -> None:
    world = RegistryWorld()
    store = FollowerStore(world, world.build_registration("orders-value", ORDER))
    answer, appended = produce_to_follower(store, framed(1))
    assert (answer.error_code, appended, store.barriers) == (ErrorCode.NONE, 1, 1)


def test_known_schema_needs_no_read_barrier() -> None:
    world = RegistryWorld()
    world.register_schema("orders-value", ORDER)
    store = FollowerStore(world, None)
    answer, appended = produce_to_follower(store, framed(1))
    assert (answer.error_code, appended, store.barriers) == (ErrorCode.NONE, 1, 0)


def test_schema_that_majority_does_not_know_is_rejected() -> None:
    store = FollowerStore(RegistryWorld(), None)
    answer, appended = produce_to_follower(store, framed(1))
    assert (answer.error_code, appended, store.barriers) == (ErrorCode.INVALID_RECORD, 0, 1)
    assert answer.error_message == "record 0 is invalid: schema id 1 of the value is not registered"


def test_unknown_schema_is_retriable_without_majority() -> None:
    store = FollowerStore(RegistryWorld(), None, has_majority=False)
    answer, appended = produce_to_follower(store, framed(1))
    assert (answer.error_code, appended, store.barriers) == (ErrorCode.NOT_ENOUGH_REPLICAS, 0, 1)


def test_record_without_schema_id_is_rejected_without_read_barrier() -> None:
    store = FollowerStore(RegistryWorld(), None)
    answer, appended = produce_to_follower(store, b"plain")
    assert (answer.error_code, appended, store.barriers) == (ErrorCode.INVALID_RECORD, 0, 0)


def test_standalone_node_rejects_unknown_schema_without_read_barrier() -> None:
    store = FollowerStore(RegistryWorld(), None)
    store.is_shared = False
    answer, _ = produce_to_follower(store, framed(1))
    assert (answer.error_code, store.barriers) == (ErrorCode.INVALID_RECORD, 0)


def test_names_of_large_schema_are_searched_before_and_after_read_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_validation, "INLINE_CHARACTERS_MAX", 0)
    world = RegistryWorld()
    world.register_schema("shop.Payment", ORDER)
    store = FollowerStore(world, world.build_registration("shop.Order", ORDER))
    answer, appended = produce_to_follower(store, framed(1), SubjectNameStrategy.RECORD)
    assert (answer.error_code, appended, store.barriers) == (ErrorCode.NONE, 1, 1)


# --- a running node ---


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizingNode]:
    """Return a node without an authorizer, with a schema under each strategy's subject and under another one."""
    node = AuthorizingNode(tmp_path_factory.mktemp("node"), **{"authorizer.class.name": ""})
    for number, subject in enumerate(
        ("orders-value", "orders-key", "shop.Order", "orders-shop.Order", "other", "deleted-value"), 1
    ):
        node.propose(
            RegisterSchema(subject, 1, ORDER, (), f'{{"n":{number}}}', bytes(15) + bytes([number]), (), -1, (), 0)
        )
    node.propose(DeleteSchemaVersions("deleted-value", (1,), False, -1))
    yield node
    node.close()


TOPIC_VALUE, TOPIC_KEY, RECORD, TOPIC_RECORD, OTHER, DELETED, UNKNOWN = range(1, 8)
"""The ids of the node's schemas, and one that does not exist."""


def create_topic(node: AuthorizingNode, name: str, **configs: str) -> str:
    client = AdminClient({"bootstrap.servers": node.bootstrap})
    topic = NewTopic(name, 1, 1, config={key.replace("_", "."): value for key, value in configs.items()})
    client.create_topics([topic])[name].result(30)
    return name


@pytest.fixture(scope="module")
def orders(node: AuthorizingNode) -> str:
    return create_topic(node, "orders", confluent_value_schema_validation="true")


class Delivery:
    """Delivery reports of a producer, in order."""

    def __init__(self) -> None:
        self.codes: list[int | None] = []

    def __call__(self, error: ClientError | None, _: Any) -> None:
        self.codes.append(None if error is None else error.code())


def deliver(node: AuthorizingNode, topic: str, *values: bytes | None, **configs: Any) -> list[int | None]:
    """Produce records in one batch. Return the error codes of their delivery reports."""
    delivery = Delivery()
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 100, **configs})
    for value in values:
        producer.produce(topic, value, on_delivery=delivery)
    assert producer.flush(30) == 0
    return delivery.codes


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("is_idempotent", [False, True])
def test_producer_delivers_only_batches_with_registered_schemas(
    node: AuthorizingNode, orders: str, codec: str, is_idempotent: bool
) -> None:
    configs = {"compression.type": codec, "enable.idempotence": is_idempotent}
    assert deliver(node, orders, *[framed(TOPIC_VALUE, b"x" * 50)] * 10, **configs) == [None] * 10
    rejected = deliver(node, orders, framed(TOPIC_VALUE), framed(UNKNOWN), **configs)
    assert rejected == [ClientError.INVALID_RECORD] * 2


def test_producer_that_got_invalid_record_can_deliver_again(node: AuthorizingNode, orders: str) -> None:
    delivery = Delivery()
    producer = Producer({"bootstrap.servers": node.bootstrap, "enable.idempotence": True})
    for schema_id in (TOPIC_VALUE, UNKNOWN, TOPIC_VALUE):
        producer.produce(orders, framed(schema_id), on_delivery=delivery)
        assert producer.flush(30) == 0
    assert delivery.codes == [None, ClientError.INVALID_RECORD, None]


def test_transaction_with_unknown_schema_can_only_be_aborted(node: AuthorizingNode, orders: str) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "validated"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(orders, framed(TOPIC_VALUE))
    producer.commit_transaction(30)
    producer.begin_transaction()
    delivery = Delivery()
    producer.produce(orders, framed(UNKNOWN), on_delivery=delivery)
    with pytest.raises(KafkaException) as error:
        producer.commit_transaction(30)
    assert error.value.args[0].txn_requires_abort()
    assert delivery.codes == [ClientError.INVALID_RECORD]
    producer.abort_transaction(30)


def test_null_key_and_value_are_accepted(node: AuthorizingNode) -> None:
    topic = create_topic(
        node, "orders-tombstones", confluent_value_schema_validation="true", confluent_key_schema_validation="true"
    )
    assert deliver(node, topic, None) == [None]


def send(node: AuthorizingNode, topic: str, *records: Record, codec: Codec = Codec.NONE) -> PartitionProduceResponse:
    with RawClient(node.bootstrap) as client:
        return request_builders.produce(client, topic, encode_batch(list(records), codec=codec))


def list_record_errors(answer: PartitionProduceResponse) -> dict[int, str | None]:
    assert answer.error_code == ErrorCode.INVALID_RECORD
    return {error.batch_index: error.batch_index_error_message for error in answer.record_errors}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_rejected_batch_lists_invalid_records_with_reasons(node: AuthorizingNode, orders: str, codec: Codec) -> None:
    values = [framed(each) for each in (TOPIC_VALUE, UNKNOWN, OTHER, UNKNOWN)]
    answer = send(node, orders, *(Record(n, -1, None, value) for n, value in enumerate(values)), codec=codec)
    assert list_record_errors(answer) == {
        1: "schema id 7 of the value is not registered",
        2: "schema id 5 of the value is not registered under subject 'orders-value'",
    }
    assert answer.error_message == "record 1 is invalid: schema id 7 of the value is not registered (and 1 more)"


def test_records_without_schema_id_are_listed_with_reasons(node: AuthorizingNode, orders: str) -> None:
    answer = send(node, orders, Record(0, -1, b"k", framed(TOPIC_VALUE)), Record(1, -1, b"k", b"plain"))
    assert list_record_errors(answer) == {1: "the value does not start with a schema id"}


def test_soft_deleted_schema_is_rejected(node: AuthorizingNode) -> None:
    topic = create_topic(node, "deleted", confluent_value_schema_validation="true")
    answer = send(node, topic, Record(0, -1, None, framed(DELETED)))
    assert list_record_errors(answer) == {0: "schema id 6 of the value is not registered under subject 'deleted-value'"}


def test_guid_in_header_names_the_schema(node: AuthorizingNode, orders: str) -> None:
    known, unknown = bytes(15) + bytes([TOPIC_VALUE]), GUID.bytes
    for guid, code in ((known, ErrorCode.NONE), (unknown, ErrorCode.INVALID_RECORD)):
        headers = (("__value_schema_id", b"\x01" + guid),)
        answer = send(node, orders, Record(0, -1, None, b"payload", headers))
        assert answer.error_code == code


@pytest.mark.parametrize(
    ("strategy", "accepted"),
    [
        (SUBJECT_NAME_STRATEGIES[0], TOPIC_KEY),
        (SUBJECT_NAME_STRATEGIES[1], RECORD),
        (SUBJECT_NAME_STRATEGIES[2], TOPIC_RECORD),
    ],
)
def test_key_must_be_registered_under_subject_of_strategy(
    node: AuthorizingNode, orders: str, strategy: str, accepted: int
) -> None:
    with RawClient(node.bootstrap) as client:
        changes = (
            ("confluent.value.schema.validation", request_builders.SET, "false"),
            ("confluent.key.schema.validation", request_builders.SET, "true"),
            ("confluent.key.subject.name.strategy", request_builders.SET, strategy),
        )
        assert request_builders.alter_configs(client, request_builders.TOPIC, orders, *changes) is ErrorCode.NONE
    try:
        for schema_id in range(TOPIC_VALUE, UNKNOWN + 1):
            answer = send(node, orders, Record(0, -1, framed(schema_id), b"plain"))
            assert answer.error_code == (ErrorCode.NONE if schema_id == accepted else ErrorCode.INVALID_RECORD)
    finally:
        with RawClient(node.bootstrap) as client:
            defaults = (
                ("confluent.value.schema.validation", request_builders.SET, "true"),
                ("confluent.key.schema.validation", request_builders.DELETE, None),
                ("confluent.key.subject.name.strategy", request_builders.DELETE, None),
            )
            assert request_builders.alter_configs(client, request_builders.TOPIC, orders, *defaults) is ErrorCode.NONE


def test_unknown_strategy_is_rejected(node: AuthorizingNode, orders: str) -> None:
    with RawClient(node.bootstrap) as client:
        change = ("confluent.value.subject.name.strategy", request_builders.SET, "com.example.MyStrategy")
        assert (
            request_builders.alter_configs(client, request_builders.TOPIC, orders, change) is ErrorCode.INVALID_CONFIG
        )


def test_large_batch_is_validated_in_a_thread(node: AuthorizingNode, orders: str) -> None:
    records = [Record(n, -1, None, framed(TOPIC_VALUE, b"x" * 500)) for n in range(5_000)]
    before = node.services.decompressor.offloaded_count
    assert send(node, orders, *records, codec=Codec.ZSTD).error_code == ErrorCode.NONE
    records[-1] = Record(4_999, -1, None, framed(UNKNOWN))
    answer = send(node, orders, *records, codec=Codec.ZSTD)
    assert list_record_errors(answer) == {4_999: "schema id 7 of the value is not registered"}
    assert node.services.decompressor.offloaded_count > before


def test_topic_without_validation_accepts_any_value(node: AuthorizingNode) -> None:
    topic = create_topic(node, "plain")
    assert deliver(node, topic, b"plain", framed(UNKNOWN)) == [None, None]


# --- hostile and unusual batches ---


def encode_sequenced(sequence: int, schema_id: int = TOPIC_VALUE, producer_id: int = 4242) -> bytes:
    """Encode a batch of an idempotent producer with one record."""
    record = Record(0, -1, None, framed(schema_id))
    return encode_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def test_rejected_batch_consumes_no_sequence_number(node: AuthorizingNode, orders: str) -> None:
    with RawClient(node.bootstrap) as client:
        codes = [
            request_builders.produce(client, orders, encode_sequenced(sequence, schema_id)).error_code
            for sequence, schema_id in ((0, TOPIC_VALUE), (1, UNKNOWN), (1, TOPIC_VALUE), (3, TOPIC_VALUE))
        ]
    assert codes == [
        ErrorCode.NONE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.NONE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ]


def test_retry_is_acknowledged_after_its_schema_was_deleted(node: AuthorizingNode) -> None:
    topic = create_topic(node, "retried", confluent_value_schema_validation="true")
    node.propose(RegisterSchema("retried-value", 1, ORDER, (), '{"n":8}', bytes(15) + b"\x08", (), -1, (), 0))
    schema_id = node.services.image.schemas.find_ids_by_guid(".", bytes(15) + b"\x08")[0]
    sent = encode_sequenced(0, schema_id, producer_id=4243)
    with RawClient(node.bootstrap) as client:
        first = request_builders.produce(client, topic, sent)
        node.propose(DeleteSchemaVersions("retried-value", (1,), False, -1))
        retry = request_builders.produce(client, topic, sent)
        assert (first.error_code, retry.error_code, retry.base_offset) == (0, 0, first.base_offset)
        another = request_builders.produce(client, topic, encode_sequenced(1, schema_id, producer_id=4243))
        assert another.error_code == ErrorCode.INVALID_RECORD
    node.propose(DeleteSchemaVersions("retried-value", (1,), True, -1))  # other tests expect no more schemas


@pytest.mark.parametrize("strategy", list(SubjectNameStrategy))
def test_permanently_deleted_schema_is_rejected_by_the_next_batch(
    node: AuthorizingNode, strategy: SubjectNameStrategy
) -> None:
    name = f"permanent{list(SubjectNameStrategy).index(strategy)}"
    topic = create_topic(
        node,
        name,
        confluent_value_schema_validation="true",
        confluent_value_subject_name_strategy=f"io.confluent.kafka.serializers.subject.{strategy.value}",
    )
    subject = {
        SubjectNameStrategy.TOPIC: f"{name}-value",
        SubjectNameStrategy.RECORD: "shop.Temporary",
        SubjectNameStrategy.TOPIC_RECORD: f"{name}-shop.Temporary",
    }[strategy]
    schema = json.dumps({"type": "record", "name": "shop.Temporary", "fields": []})
    guid = name.encode().ljust(16, b"\0")
    node.propose(RegisterSchema(subject, 1, schema, (), json.dumps({"n": name}), guid, (), -1, (), 0))
    (schema_id,) = node.services.image.schemas.find_ids_by_guid(".", guid)
    assert deliver(node, topic, framed(schema_id)) == [None]  # the names of its record types are cached
    for is_permanent in (False, True):
        node.propose(DeleteSchemaVersions(subject, (1,), is_permanent, -1))
        answer = send(node, topic, Record(0, -1, None, framed(schema_id)))
        (reason,) = map(str, list_record_errors(answer).values())
        assert reason.startswith(f"schema id {schema_id} of the value is not registered")
        assert (" under subject" in reason) != is_permanent


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_format_is_validated(node: AuthorizingNode, orders: str, magic: int, codec: Codec) -> None:
    for schema_id, code in ((TOPIC_VALUE, ErrorCode.NONE), (UNKNOWN, ErrorCode.INVALID_RECORD)):
        records = [Record(n, 0, b"k", framed(each)) for n, each in enumerate((TOPIC_VALUE, schema_id))]
        messages = convert_to_message_set(encode_batch(records, codec=codec), magic)
        with RawClient(node.bootstrap) as client:
            assert request_builders.produce(client, orders, messages, version=2).error_code == code


HEADER = "__value_schema_id"


@pytest.mark.parametrize(
    ("value", "headers", "reason"),
    [
        (b"", (), "the value does not start with a schema id"),
        (b"\x00", (), "the value does not start with a schema id"),
        (framed(TOPIC_VALUE)[:4], (), "the value does not start with a schema id"),
        (b"\x02" + framed(TOPIC_VALUE)[1:], (), "the value does not start with a schema id"),
        (b"\x01" + bytes(15), (), "the value does not start with a schema id"),
        (b"\x01" + GUID.bytes, (), f"schema GUID {GUID} of the value is not registered"),
        (b"\x00\xff\xff\xff\xff", (), "schema id 4294967295 of the value is not registered"),
        (framed(TOPIC_VALUE), ((HEADER, None),), f"the header {HEADER} has neither an id nor a GUID"),
        (framed(TOPIC_VALUE), ((HEADER, b""),), f"the header {HEADER} has neither an id nor a GUID"),
        (framed(TOPIC_VALUE), ((HEADER, framed(TOPIC_VALUE)),), f"the header {HEADER} has neither an id nor a GUID"),
        (framed(TOPIC_VALUE), ((HEADER, framed(UNKNOWN, b"")),), "schema id 7 of the value is not registered"),
        (
            b"payload",
            ((HEADER, framed(TOPIC_VALUE, b"")), (HEADER, framed(UNKNOWN, b""))),
            "schema id 7 of the value is not registered",
        ),
    ],
)
def test_record_without_valid_schema_id_is_rejected(
    node: AuthorizingNode, orders: str, value: bytes, headers: Any, reason: str
) -> None:
    answer = send(node, orders, Record(0, -1, None, value, headers))
    assert list_record_errors(answer) == {0: reason}


@pytest.mark.parametrize(
    ("value", "headers"),
    [
        (framed(TOPIC_VALUE, b""), ()),
        (None, ((HEADER, b"anything"),)),
        (framed(UNKNOWN), ((HEADER, framed(TOPIC_VALUE, b"")),)),
        (b"payload", ((HEADER, framed(UNKNOWN, b"")), (HEADER, framed(TOPIC_VALUE, b"")))),
        (framed(TOPIC_VALUE), (("__key_schema_id", b"broken"), ("x_schema_id", None))),
    ],
)
def test_record_with_valid_schema_id_is_accepted(
    node: AuthorizingNode, orders: str, value: bytes | None, headers: Any
) -> None:
    """The last header counts, as for Confluent's deserializers; null values need no schema."""
    assert send(node, orders, Record(0, -1, None, value, headers)).error_code == ErrorCode.NONE


def test_control_batch_is_rejected_on_validated_topic(node: AuthorizingNode, orders: str) -> None:
    marker = encode_batch(
        [Record(0, -1, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00")],
        producer_id=4244,
        producer_epoch=0,
        transactional=True,
        control=True,
    )
    with RawClient(node.bootstrap) as client:
        assert request_builders.produce(client, orders, marker).error_code == ErrorCode.INVALID_RECORD


def test_batch_that_names_too_many_schemas_is_rejected(node: AuthorizingNode, orders: str) -> None:
    answer = send(node, orders, *(Record(n, -1, None, framed(n + 100)) for n in range(1001)))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert answer.error_message == "the batch names more than 1000 schemas"


def test_new_producer_continues_after_rejected_batch_of_pipelined_transaction(
    node: AuthorizingNode, orders: str
) -> None:
    """Librdkafka sends later batches before it learns of the rejection, and does not reset their sequence numbers.

    Apache Kafka rejects them in the same way. Another producer with the same transactional id starts a new epoch.
    """
    producer = create_transactional_producer(node)
    delivery = Delivery()
    producer.begin_transaction()
    for schema_id in (TOPIC_VALUE, UNKNOWN, TOPIC_VALUE, TOPIC_VALUE):
        with suppress(KafkaException):  # once the error is known, produce fails
            producer.produce(orders, framed(schema_id, b"aborted"), on_delivery=delivery)
    with pytest.raises(KafkaException):
        producer.commit_transaction(10)
    assert ClientError.INVALID_RECORD in delivery.codes
    successor = create_transactional_producer(node)
    successor.begin_transaction()
    successor.produce(orders, framed(TOPIC_VALUE, b"committed"))
    successor.commit_transaction(30)
    values = read_committed_values(node, orders)
    assert framed(TOPIC_VALUE, b"committed") in values
    assert framed(TOPIC_VALUE, b"aborted") not in values


def create_transactional_producer(node: AuthorizingNode) -> Producer:
    """Return a producer with one record per batch that has fenced earlier ones."""
    configs: dict[str, Any] = {"bootstrap.servers": node.bootstrap, "transactional.id": "pipelined", "linger.ms": 0}
    producer = Producer(configs | {"batch.num.messages": 1})
    producer.init_transactions(30)
    return producer


def read_committed_values(node: AuthorizingNode, topic: str) -> list[bytes | None]:
    with Consumer({"bootstrap.servers": node.bootstrap, "group.id": "reader", "enable.partition.eof": True}) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        values: list[bytes | None] = []
        while True:
            message = reader.poll(30)
            assert message is not None, "no record and no end of the partition within 30 s"
            if message.error() is not None:
                assert message.error().code() == ClientError._PARTITION_EOF
                return values
            values.append(message.value())
