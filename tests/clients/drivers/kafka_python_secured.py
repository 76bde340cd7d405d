"""kafka-python with TLS and SASL."""

from __future__ import annotations

from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider

from .secured import FLUSH_TIMEOUT_S, AccessSettings, LogCapture, encode_number, fetch_token

BOOTSTRAP_TIMEOUT_MS = 5000
"""How long the client retries to connect, even after a rejected login; the default is 30 s."""


class SecuredClient:
    """A producer and a consumer of kafka-python with security settings."""

    def __init__(self, access: AccessSettings) -> None:
        self._topic = access.topic
        self._settings = _settings(access)
        with LogCapture("kafka") as log_capture:
            try:
                self._producer = KafkaProducer(**self._settings, bootstrap_timeout_ms=BOOTSTRAP_TIMEOUT_MS)
            except KafkaError as error:
                raise log_capture.to_rejection(error) from error
        self._sent: list[Any] = []
        self._consumer: Any = None

    def send(self, number: int) -> None:
        self._sent.append(self._producer.send(self._topic, encode_number(number), partition=0))

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
        return fetch_token(self._url)[0]


def _settings(access: AccessSettings) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": access.bootstrap,
        "security_protocol": access.protocol,
        "ssl_cafile": access.ca,
        "ssl_certfile": access.pem,
        "ssl_keyfile": access.pem,
        "sasl_mechanism": access.mechanism,
    }
    if access.has_token:
        return settings | {"sasl_oauth_token_provider": _Tokens(access.secret)}
    return settings | {"sasl_plain_username": access.user, "sasl_plain_password": access.secret}
