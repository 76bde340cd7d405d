"""confluent-kafka with TLS and SASL."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from .command_loop import CommandRejected
from .secured import FLUSH_TIMEOUT_S, LOGIN_REJECTED, AccessSettings, encode_number, fetch_token

REJECTION_CODES = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._ALL_BROKERS_DOWN)
BATCH_MAX = 500


class SecuredClient:
    """A producer and a consumer of confluent-kafka with security settings."""

    def __init__(self, access: AccessSettings) -> None:
        self._topic = access.topic
        self._rejections: list[str] = []
        self._failures: list[str] = []
        self._settings = _settings(access) | {"error_cb": self._on_error}
        self._producer = Producer(self._settings)
        self._consumer: Any = None

    def send(self, number: int) -> None:
        self._producer.produce(self._topic, encode_number(number), partition=0, on_delivery=self._on_delivery)
        self._producer.poll(0)

    def flush(self) -> None:
        deadline = time.monotonic() + FLUSH_TIMEOUT_S
        while len(self._producer) and not self._rejections and time.monotonic() < deadline:
            self._producer.poll(0.05)
        if self._rejections:
            raise CommandRejected(LOGIN_REJECTED, self._rejections[0])
        if self._failures or len(self._producer):
            raise RuntimeError(f"{len(self._producer)} records were not acknowledged in time; {self._failures[:3]}")

    def open_consumer(self) -> None:
        self._consumer = Consumer(self._settings | {"group.id": "never-joined"})
        self._consumer.assign([TopicPartition(self._topic, 0, 0)])

    def poll(self, timeout_s: float) -> list[int]:
        return [_parse_number(message) for message in self._consumer.consume(BATCH_MAX, timeout_s)]

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._producer.purge()
        self._producer.flush(5)

    def _on_error(self, error: KafkaError) -> None:
        (self._rejections if error.code() in REJECTION_CODES else self._failures).append(error.str())

    def _on_delivery(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self._failures.append(error.str())


def _parse_number(message: Any) -> int:
    if message.error() is not None:
        raise KafkaException(message.error())
    return int(message.value())


def _settings(access: AccessSettings) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap.servers": access.bootstrap, "security.protocol": access.protocol}
    if access.ca is not None:
        settings["ssl.ca.location"] = access.ca
    if access.pem is not None:
        settings |= {"ssl.certificate.location": access.pem, "ssl.key.location": access.pem}
    if access.mechanism is None:
        return settings
    settings["sasl.mechanism"] = access.mechanism
    if access.has_token:
        return settings | {"oauth_cb": lambda _: (*fetch_token(access.secret), "principal", {})}
    return settings | {"sasl.username": access.user, "sasl.password": access.secret}
