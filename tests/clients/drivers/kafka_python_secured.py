"""kafka-python over TLS, with passwords and with tokens."""

from __future__ import annotations

from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider

from .secured import FLUSH_TIMEOUT_S, Said, Way, as_value, fetched_token

BOOTSTRAP_TIMEOUT_MS = 5000
"""It tries again for so long, whatever it is told; by default for 30 s."""


class Secured:
    def __init__(self, way: Way) -> None:
        self._topic = way.topic
        self._settings = _settings(way)
        with Said("kafka") as said:
            try:
                self._producer = KafkaProducer(**self._settings, bootstrap_timeout_ms=BOOTSTRAP_TIMEOUT_MS)
            except KafkaError as error:
                raise said.refused(error) from error
        self._sent: list[Any] = []
        self._consumer: Any = None

    def send(self, number: int) -> None:
        self._sent.append(self._producer.send(self._topic, as_value(number), partition=0))

    def flush(self) -> None:
        for future in self._sent:
            future.get(FLUSH_TIMEOUT_S)
        self._sent.clear()

    def open_consumer(self) -> None:
        self._consumer = KafkaConsumer(**self._settings)
        self._consumer.assign([TopicPartition(self._topic, 0)])
        self._consumer.seek_to_beginning()

    def poll(self, timeout_s: float) -> list[int]:
        polled = self._consumer.poll(timeout_ms=int(timeout_s * 1000))
        return [int(message.value) for messages in polled.values() for message in messages]

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._producer.close()


class _Tokens(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def token(self) -> str:
        return fetched_token(self._url)[0]


def _settings(way: Way) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": way.bootstrap,
        "security_protocol": way.protocol,
        "ssl_cafile": way.ca,
        "ssl_certfile": way.pem,
        "ssl_keyfile": way.pem,
        "sasl_mechanism": way.mechanism,
    }
    if way.has_token:
        return settings | {"sasl_oauth_token_provider": _Tokens(way.secret)}
    return settings | {"sasl_plain_username": way.user, "sasl_plain_password": way.secret}
