"""confluent-kafka over TLS, with passwords and with tokens."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from .secured import FLUSH_TIMEOUT_S, NOT_LET_IN, Way, as_value, fetched_token
from .serving import Refused

REFUSALS = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._ALL_BROKERS_DOWN)
BATCH_MAX = 500


class Secured:
    def __init__(self, way: Way) -> None:
        self._topic = way.topic
        self._refusals: list[str] = []
        self._failures: list[str] = []
        self._settings = _settings(way) | {"error_cb": self._told}
        self._producer = Producer(self._settings)
        self._consumer: Any = None

    def send(self, number: int) -> None:
        self._producer.produce(self._topic, as_value(number), partition=0, on_delivery=self._delivered)
        self._producer.poll(0)

    def flush(self) -> None:
        deadline = time.monotonic() + FLUSH_TIMEOUT_S
        while len(self._producer) and not self._refusals and time.monotonic() < deadline:
            self._producer.poll(0.05)
        if self._refusals:
            raise Refused(NOT_LET_IN, self._refusals[0])
        if self._failures or len(self._producer):
            raise RuntimeError(f"{len(self._producer)} records were not acknowledged in time; {self._failures[:3]}")

    def open_consumer(self) -> None:
        self._consumer = Consumer(self._settings | {"group.id": "never-joined"})
        self._consumer.assign([TopicPartition(self._topic, 0, 0)])

    def poll(self, timeout_s: float) -> list[int]:
        return [_number(message) for message in self._consumer.consume(BATCH_MAX, timeout_s)]

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._producer.purge()
        self._producer.flush(5)

    def _told(self, error: KafkaError) -> None:
        (self._refusals if error.code() in REFUSALS else self._failures).append(error.str())

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self._failures.append(error.str())


def _number(message: Any) -> int:
    if message.error() is not None:
        raise KafkaException(message.error())
    return int(message.value())


def _settings(way: Way) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap.servers": way.bootstrap, "security.protocol": way.protocol}
    if way.ca is not None:
        settings["ssl.ca.location"] = way.ca
    if way.pem is not None:
        settings |= {"ssl.certificate.location": way.pem, "ssl.key.location": way.pem}
    if way.mechanism is None:
        return settings
    settings["sasl.mechanism"] = way.mechanism
    if way.has_token:
        return settings | {"oauth_cb": lambda _: (*fetched_token(way.secret), "whoever", {})}
    return settings | {"sasl.username": way.user, "sasl.password": way.secret}
