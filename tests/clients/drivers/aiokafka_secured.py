"""aiokafka over TLS, with passwords and with tokens."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError

from .secured import FLUSH_TIMEOUT_S, Said, Way, as_value, fetched_token


class Secured:
    def __init__(self, way: Way, run: Callable[..., Any]) -> None:
        """`run` has a coroutine run by the driver's loop, and returns its result."""
        self._topic = way.topic
        self._settings = _settings(way)
        self._run = run
        with Said("aiokafka") as said:
            try:
                self._producer = run(_started(AIOKafkaProducer, **self._settings))
            except KafkaError as error:
                raise said.refused(error) from error
        self._sent: list[Any] = []
        self._consumer: Any = None

    def send(self, number: int) -> None:
        self._sent.append(self._run(self._producer.send(self._topic, as_value(number), partition=0)))

    def flush(self) -> None:
        self._run(_all(self._sent))
        self._sent = []

    def open_consumer(self) -> None:
        self._consumer = self._run(
            _started(AIOKafkaConsumer, self._topic, auto_offset_reset="earliest", **self._settings)
        )

    def poll(self, timeout_s: float) -> list[int]:
        polled = self._run(self._consumer.getmany(timeout_ms=int(timeout_s * 1000)))
        return [int(message.value) for messages in polled.values() for message in messages]

    def close(self) -> None:
        if self._consumer is not None:
            self._run(self._consumer.stop())
        self._run(self._producer.stop())


async def _started(kind: Any, *topics: str, **settings: Any) -> Any:
    client = kind(*topics, **settings)
    try:
        await client.start()
    except BaseException:
        await client.stop()
        raise
    return client


async def _all(sent: list[Any]) -> None:
    await asyncio.wait_for(asyncio.gather(*sent), FLUSH_TIMEOUT_S)


class _Tokens(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, url: str) -> None:
        self._url = url

    async def token(self) -> str:
        return (await asyncio.to_thread(fetched_token, self._url))[0]


def _settings(way: Way) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap_servers": way.bootstrap, "security_protocol": way.protocol}
    if way.ca is not None:
        settings["ssl_context"] = ssl.create_default_context(cafile=way.ca)
    if way.pem is not None:
        settings["ssl_context"].load_cert_chain(way.pem)
    if way.mechanism is None:
        return settings
    settings["sasl_mechanism"] = way.mechanism
    if way.has_token:
        return settings | {"sasl_oauth_token_provider": _Tokens(way.secret)}
    return settings | {"sasl_plain_username": way.user, "sasl_plain_password": way.secret}
