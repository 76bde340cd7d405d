"""A three-node cluster with TLS, SASL and ACLs, and with test data."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from chronik.client.access.settings import BootstrapAccess, parse_security
from chronik.client.admin import NewTopic, create_topics, list_topics
from chronik.client.cluster import ClusterClient as Client
from chronik.client.cluster import list_broker_ids
from chronik.client.connection import BrokerConnection
from chronik.client.producer import Producer as OurProducer
from chronik.client.security import AclBinding, add_acls, set_password
from chronik.config import Address
from chronik.metadata.names import PIPELINES_TOPIC
from chronik.pipeline.journal.journal_client import encode_progress, encode_schema
from chronik.pipeline.journal.sample_responder import SampleResponder
from chronik.pipeline_journal import ColumnInfo, PipelineTopicKey, TableColumns, TopicProgress
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.security.acls import AclPermission, PatternType
from chronik.security.sasl.outcomes import SCRAM_SHA_256
from chronik.security.sasl.scram_keys import ITERATIONS_MIN, MECHANISMS_BY_NAME
from chronik.testing import Cluster
from chronik.testing.broker import HOST
from chronik.testing.broker_process import FIRST_USER_KEY
from chronik.testing.cluster import REQUEST_SECONDS_MAX, ClusterNode

ADMIN: Final = "admin"
ADA: Final = "ada"
"""A user who may only read topic orders."""
PIPELINE: Final = "shop"
COLUMNS: Final = (
    ColumnInfo("_partition", "int"),
    ColumnInfo("_offset", "bigint"),
    ColumnInfo("customer", "string"),
    ColumnInfo("euros", "double"),
    ColumnInfo("items", "array<struct<sku: string, count: bigint>>"),
)
TLS_NODE: Final = 2
"""The node whose console uses TLS; the others serve it on loopback without TLS."""


class SecuredNode(ClusterNode):
    def __init__(self, folder: Path, kafka: Address, http: Address, access: BootstrapAccess, **config: Any) -> None:
        super().__init__(folder, kafka, http, **config)
        self.access = access

    def name_first_user(self, name: str, password: str) -> None:
        self._config[FIRST_USER_KEY] = [name, password]

    def listed_brokers(self) -> list[int]:
        security = self.access.security
        with BrokerConnection(
            self.kafka, client_id="test", timeout_s=REQUEST_SECONDS_MAX, security=security
        ) as connection:
            return list_broker_ids(connection)


class SecuredCluster(Cluster):
    def __init__(self, folder: Path, **more: Any) -> None:
        self.passwords = {ADMIN: secrets.token_urlsafe(), ADA: secrets.token_urlsafe()}
        self.ca_file = folder / "ca.pem"
        self.keystore = self._certificate(folder)
        broker = {
            "listener.security.protocol.map": "PLAINTEXT:SASL_SSL",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS_BY_NAME),
            "authorizer.class.name": "standard",
            "super.users": f"User:{ADMIN}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keystore),
        }
        config = {"http_token": secrets.token_hex(), "broker": broker}
        super().__init__(3, folder, **(config | more))

    def _certificate(self, folder: Path) -> Path:
        from chronik.tls.certificate_authority import CertificateAuthority

        authority = CertificateAuthority("chronik-testing")
        keystore = folder / "broker.pem"
        keystore.touch(0o600)
        keystore.write_bytes(authority.issue("CN=broker", [HOST, "localhost"]).keystore_pem)
        self.ca_file.write_bytes(authority.certificate_pem)
        return keystore

    def _new_node(self, folder: Path, kafka: Address, http: Address, **config: Any) -> ClusterNode:
        if config["node_id"] == TLS_NODE:
            config["http_keystore"] = str(self.keystore)
        node = SecuredNode(folder, kafka, http, self.access(), **config)
        node.name_first_user(ADMIN, self.passwords[ADMIN])
        return node

    def settings(self, user: str = ADMIN) -> dict[str, str]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": SCRAM_SHA_256,
            "sasl.username": user,
            "sasl.password": self.passwords[user],
            "ssl.ca.location": str(self.ca_file),
        }

    def access(self, user: str = ADMIN) -> BootstrapAccess:
        return BootstrapAccess(self.bootstrap, parse_security(self.settings(user)))

    def console_url(self, node_id: int) -> str:
        """Return the URL of a node's console."""
        return f"{'https' if node_id == TLS_NODE else 'http'}://{self[node_id].http}"

    def remove_node(self, node_id: int) -> None:
        """Stop a node that was removed from the cluster, and drop its addresses."""
        self.nodes.pop(node_id).kill()
        del self._kafka[node_id], self._raft[node_id]

    def client(self) -> Client:
        return Client(self.access())

    def create_test_data(self) -> None:
        """Create topics, messages, a group with lag, a pipeline's progress, a user and an ACL."""
        with self.client() as client:
            topics = [NewTopic("orders", 3), NewTopic("payments", 3), NewTopic("clicks.web", 6)]
            create_topics(client, [*topics, NewTopic(PIPELINES_TOPIC, 1, configs={"cleanup.policy": "compact"})])
            set_password(client, ADA, self.passwords[ADA], list(MECHANISMS_BY_NAME), ITERATIONS_MIN)
            binding = (PatternType.LITERAL, f"User:{ADA}", "*")
            add_acls(
                client, [AclBinding(AclResourceType.TOPIC, "orders", *binding, AclOperation.READ, AclPermission.ALLOW)]
            )
            records = [encode_schema(PipelineTopicKey(PIPELINE, "orders"), TableColumns(COLUMNS))]
            OurProducer(client).send(PIPELINES_TOPIC, records)
        self.report_progress("orders", "payments")
        self.produce("orders", 600)
        self.produce("payments", 60)
        self.commit_offsets()

    def report_progress(self, *topics: str, state: str | None = None) -> None:
        """Report the progress of topics, as a driver does every ten seconds."""
        with self.client() as client:
            records = [
                encode_progress(PipelineTopicKey(PIPELINE, topic), build_progress(topic, state)) for topic in topics
            ]
            OurProducer(client).send(PIPELINES_TOPIC, records)

    @contextmanager
    def driver(self) -> Iterator[list[bytes]]:
        """Answer requests for sample rows with the responses that are appended to the list."""
        responses: list[bytes] = []
        answerer = SampleResponder(self.access(), PIPELINE, lambda topic, rows: responses.pop(0))
        try:
            yield responses
        finally:
            answerer.close()

    def produce(self, topic: str, count: int, first: int = 0) -> None:
        producer = Producer(self.settings())
        for number in range(first, first + count):
            customer = ("ada", "alan", "grace")[number % 3]
            order = {
                "number": number,
                "customer": customer,
                "euros": round(number * 7.31 % 90, 2),
                "items": [{"sku": f"S-{number % 17:03}", "count": number % 4 + 1}],
                "paid": number % 2 == 0,
                "trace": 9007199254740993 + number,
            }
            headers = [("source", b"shop"), ("attempt", b"1")]
            producer.produce(topic, json.dumps(order).encode(), key=customer.encode(), headers=headers)
        assert producer.flush(60) == 0

    def produce_bytes(self, topic: str, *values: bytes) -> None:
        """Produce values to partition 0 of a topic, which is created if necessary."""
        with self.client() as client:
            if not any(each.name == topic for each in list_topics(client)):
                create_topics(client, [NewTopic(topic, 1)])
        producer = Producer(self.settings())
        for value in values:
            producer.produce(topic, value, key=b"ada", partition=0)
        assert producer.flush(60) == 0

    def commit_offsets(self) -> None:
        consumer = Consumer(self.settings() | {"group.id": "billing", "enable.auto.commit": False})
        behind = [TopicPartition("orders", partition, 40) for partition in range(2)]
        consumer.commit(offsets=behind, asynchronous=False)
        consumer.close()

    def open_transaction(self) -> Producer:
        producer = Producer(self.settings() | {"transactional.id": "billing-3", "transaction.timeout.ms": 600_000})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("payments", b'{"held": true}', key=b"ada")
        assert producer.flush(60) == 0
        return producer


def build_progress(topic: str, state: str | None = None) -> TopicProgress:
    now = int(time.time() * 1000)
    return TopicProgress(
        state=state or ("running" if topic == "orders" else "failing"),
        table=f"tables/{topic}",
        next_offsets={0: 180, 1: 200, 2: 160},
        high_watermarks={0: 200, 1: 200, 2: 200},
        round_rows=540,
        round_seconds=1.5,
        total_rows=5400,
        total_dead_letters=0 if topic == "orders" else 2,
        last_error=None if topic == "orders" else "the table was changed concurrently",
        last_error_ms=None if topic == "orders" else now,
        host="driver",
        pid=865,
        started_ms=now - 3_600_000,
        at_ms=now,
    )
