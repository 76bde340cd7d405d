"""aiokafka with TLS and SASL."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError

from .secured import FLUSH_TIMEOUT_S, AccessSettings, LogCapture, encode_number, fetch_token


class SecuredClient:
    """A producer and a consumer of aiokafka with security settings."""

    def __init__(self, access: AccessSettings, run: Callable[..., Any]) -> None:
        """Start a producer. `run` runs a coroutine on the driver's event loop and returns its result."""
        self._topic = access.topic
        self._settings = _settings(access)
        self._run = run
        with LogCapture("aiokafka") as log_capture:
            try:
                self._producer = run(_start_client(AIOKafkaProducer, **self._settings))
            except KafkaError as error:
                raise log_capture.to_rejection(error) from error
        self._sent: list[Any] = []
        self._consumer: Any = None

    def send(self, number: int) -> None:
        self._sent.append(self._run(self._producer.send(self._topic, encode_number(number), partition=0)))

    def flush(self) -> None:
        self._run(_wait_for_all(self._sent))
        self._sent = []

    def open_consumer(self) -> None:
        self._consumer = self._run(
            _start_client(AIOKafkaConsumer, self._topic, auto_offset_reset="earliest", **self._settings)
        )

    def poll(self, timeout_s: float) -> list[int]:
        polled = self._run(self._consumer.getmany(timeout_ms=int(timeout_s * 1000)))
        return [int(message.value) for messages in polled.values() for message in messages]

    def close(self) -> None:
        if self._consumer is not None:
            self._run(self._consumer.stop())
        self._run(self._producer.stop())


async def _start_client(client_class: Any, *topics: str, **settings: Any) -> Any:
    client = client_class(*topics, **settings)
    try:
        await client.start()
    except BaseException:
        await client.stop()
        raise
    return client


async def _wait_for_all(sent: list[Any]) -> None:
    await asyncio.wait_for(asyncio.gather(*sent), FLUSH_TIMEOUT_S)


class _Tokens(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, url: str) -> None:
        self._url = url

    async def token(self) -> str:
        return (await asyncio.to_thread(fetch_token, self._url))[0]


def _settings(access: AccessSettings) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap_servers": access.bootstrap, "security_protocol": access.protocol}
    if access.ca is not None:
        settings["ssl_context"] = ssl.create_default_context(cafile=access.ca)
    if access.pem is not None:
        settings["ssl_context"].load_cert_chain(access.pem)
    if access.mechanism is None:
        return settings
    settings["sasl_mechanism"] = access.mechanism
    if access.has_token:
        return settings | {"sasl_oauth_token_provider": _Tokens(access.secret)}
    return settings | {"sasl_plain_username": access.user, "sasl_plain_password": access.secret}
