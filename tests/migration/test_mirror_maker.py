"""Migration from Apache Kafka with MirrorMaker 2, as in docs/guides/from-apache-kafka.md."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from bench.apache_kafka import ApacheKafka, kafka_unavailable_reason
from chronik.client.cluster import ClusterClient
from chronik.client.offsets import list_latest_offsets
from chronik.client.records import TopicPartition as LogPartition
from chronik.testing.broker import Broker
from chronik.testing.ports import HOST, ReservedPorts
from tests.cli.command_line import run_chronik
from tests.clients.client_catalog import JVM_OPTIONS, TOOLS
from tests.run_size import sized

pytestmark = pytest.mark.xdist_group("jvms")

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "from-apache-kafka.md"
JARS = TOOLS / "jars" / "connect"
MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"
SECONDS_MAX = 120.0
"""The timeout for a busy machine; twenty seconds are usual."""

PARTITIONS = 3
RECORDS = sized(300, 30_000)
KILLS = sized(0, 3)
FIRST_MS = 1_700_000_000_000
COMMITTED = {0: RECORDS, 1: RECORDS, 2: RECORDS // 2}
"""The group's committed offsets in Kafka: it has read two partitions completely and half of the third."""

AT_THE_END = [partition for partition, offset in COMMITTED.items() if offset == RECORDS]

Record = tuple[bytes, bytes, int, list[tuple[str, bytes]]]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def settings(kafka: str, chronik: str, port: int) -> str:
    """Return the MirrorMaker settings of the page with the addresses of this test."""
    (text,) = blocks("properties")
    for shown, meant in (
        ("kafka.example.org:9092", kafka),
        ("chronik.example.org:9092", chronik),
        ("http://127.0.0.1:8083", f"http://{HOST}:{port}"),
    ):
        assert text.count(shown) == 1
        text = text.replace(shown, meant)
    return text


def wait_for(what: str, state: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not state():
        assert time.monotonic() < deadline, f"not within {SECONDS_MAX:g} s: {what}\n{log.read_text()[-3000:]}"
        time.sleep(0.1)


class MirrorMaker:
    """A MirrorMaker process that can be killed and restarted."""

    def __init__(self, file: Path, log: Path) -> None:
        self._command = ["java", *JVM_OPTIONS, "-Xmx512m", "-cp", f"{JARS}/*", MAIN, str(file)]
        self._log = log

    def __enter__(self) -> MirrorMaker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def record(number: int) -> Record:
    return b"key %d" % number, b"value %d" % number, FIRST_MS + number, [("number", b"%d" % number)]


def write(bootstrap: str, numbers: range) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True}
    )  # without idempotence, retries could reorder records
    for number in numbers:
        key, value, time_ms, headers = record(number)
        for partition in range(PARTITIONS):
            producer.produce("orders", value, key, partition, timestamp=time_ms, headers=headers)
    assert producer.flush(SECONDS_MAX) == 0


def abort_some(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "hesitant"})
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce("orders", b"never meant to be", b"key", partition=0)
    producer.flush(SECONDS_MAX)
    producer.abort_transaction(SECONDS_MAX)


def commit(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing"})
    offsets = [TopicPartition("orders", partition, offset) for partition, offset in COMMITTED.items()]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def committed(bootstrap: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing"})
    asked = [TopicPartition("orders", partition) for partition in range(PARTITIONS)]
    found = {each.partition: each.offset for each in consumer.committed(asked, SECONDS_MAX)}
    consumer.close()
    return found


def ends_of(bootstrap: str) -> list[int]:
    """Return the log end offset of each partition, including transaction markers."""
    with ClusterClient(bootstrap) as cluster:
        if "orders" not in {topic.name for topic in cluster.metadata(None).topics}:
            return [0] * PARTITIONS
        return list(list_latest_offsets(cluster, [LogPartition("orders", each) for each in range(PARTITIONS)]).values())


def is_beyond(bootstrap: str, end: int) -> bool:
    return max(ends_of(bootstrap)) > end


def is_translated(bootstrap: str) -> bool:
    found = committed(bootstrap)
    return all(found[partition] >= RECORDS for partition in AT_THE_END)


def topics_of(bootstrap: str) -> set[str]:
    return set(Producer({"bootstrap.servers": bootstrap}).list_topics(timeout=SECONDS_MAX).topics)


def as_record(message: Message) -> Record:
    value, key = message.value(), message.key()
    assert value is not None
    assert key is not None
    return key, value, message.timestamp()[1], list(message.headers() or [])


def read(bootstrap: str, group: str, last: int, log: Path) -> dict[int, list[Record]]:
    """Return the records that a group member reads until it has seen the last record of every partition."""
    seen: dict[int, list[Record]] = {partition: [] for partition in range(PARTITIONS)}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])

    def all_seen() -> bool:
        for message in consumer.consume(RECORDS, 0.2):
            assert message.error() is None, message.error()
            partition = message.partition()
            assert partition is not None
            seen[partition].append(as_record(message))
        return all(records and records[-1] == record(last) for records in seen.values())

    wait_for(f"record {last} in every partition", all_seen, log)
    consumer.close()
    return seen


def run_commands(block: str, bootstrap: str) -> str:
    """Run the commands of a code block and return their output."""
    said = ""
    for line in block.splitlines():
        words = shlex.split(line.replace("chronik.example.org:9092", bootstrap))
        assert words[0] == "chronik"
        done = run_chronik(*words[1:])
        assert done.code == 0, done.err
        said += done.out
    return said


def test_mirror_maker_copies_records_and_group_offsets(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    if (reason := kafka_unavailable_reason()) is not None:
        pytest.skip(reason)
    if not list(JARS.glob("connect-mirror-[0-9]*.jar")):
        pytest.skip("MirrorMaker 2 is not set up; run tools/clients/setup connect")
    log, file, ports = tmp_path / "mirror-maker.log", tmp_path / "chronik.properties", ReservedPorts(1)
    with ApacheKafka(tmp_path) as kafka, Broker(tmp_path / "chronik") as broker:
        kafka.create_topic(
            "orders", PARTITIONS, retention_ms="-1", min_insync_replicas="1", cleanup_policy="compact,delete"
        )
        write(kafka.bootstrap, range(RECORDS))
        abort_some(kafka.bootstrap)
        commit(kafka.bootstrap)
        before = topics_of(kafka.bootstrap)
        file.write_text(settings(kafka.bootstrap, broker.bootstrap, ports.ports[0]))
        look, ends, clean_up = blocks("sh")
        last = RECORDS
        with MirrorMaker(file, log) as mirror_maker:
            wait_for("records", lambda: min(ends_of(broker.bootstrap)) >= RECORDS, log)
            copied = read(broker.bootstrap, "witness", RECORDS - 1, log)
            wait_for("offsets of the group", lambda: is_translated(broker.bootstrap), log)
            described = run_commands(look, broker.bootstrap)
            for _ in range(KILLS):
                mirror_maker.kill()
                there = max(ends_of(broker.bootstrap))
                write(kafka.bootstrap, range(last, last := last + RECORDS))
                mirror_maker.start()
                wait_for("some more records", partial(is_beyond, broker.bootstrap, there), log)
            write(kafka.bootstrap, range(last, last := last + RECORDS))
            moved = read(broker.bootstrap, "billing", last - 1, log)
            assert f"value {last - 1}" in run_commands(ends, broker.bootstrap)
        run_commands(clean_up, broker.bootstrap)
        assert topics_of(kafka.bootstrap) == before, "MirrorMaker must not write to the source cluster"
        assert "orders" in topics_of(broker.bootstrap)
    ports.release()
    everything = [record(number) for number in range(last)]
    assert copied == dict.fromkeys(range(PARTITIONS), everything[:RECORDS])
    assert "cleanup.policy=compact,delete" in described
    assert "retention.ms=-1" in described
    assert "min.insync.replicas" not in described
    for partition, offset in COMMITTED.items():
        shown = moved[partition]
        assert shown == everything[-len(shown) :], "records must be in order, without duplicates"
        assert len(shown) >= last - offset, "no unread record may be skipped"
    for partition in AT_THE_END:
        assert len(moved[partition]) == last - RECORDS, "a group at the end must not read records again"
    record_property(
        "summary",
        f"MirrorMaker 2 from Apache Kafka: {PARTITIONS * last:,} records, {KILLS} kills, each record once;"
        " the group continues at its committed offsets",
    )
