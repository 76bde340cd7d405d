"""What each client does with a password or a token: writes some records and reads them back, or is refused."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition
from kafka.errors import KafkaTimeoutError
from kafka.net.sasl.oauth import AbstractTokenProvider

from .catalogue import CLIENTS, DRIVERS_SOURCES, JVM_OPTIONS, PROJECT, TOOLS

COUNT = 20
RUN_SECONDS_MAX = 90.0
TOKEN_USER = "token-user"


class NotLetIn(Exception):
    """With what the client says about it."""


class Identity:
    """Who a client says it is, and how. `password` is the token for OAUTHBEARER."""

    def __init__(self, mechanism: str, user: str, password: str) -> None:
        self.mechanism = mechanism
        self.user = user
        self.password = password

    @property
    def has_token(self) -> bool:
        return self.mechanism == "OAUTHBEARER"


def confluent(bootstrap: str, topic: str, who: Identity, folder: Path) -> int:
    refusals: list[str] = []

    def failed(error: KafkaError) -> None:
        if error.code() == KafkaError._AUTHENTICATION:
            refusals.append(error.str())

    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": who.mechanism,
        "error_cb": failed,
    }
    if who.has_token:
        settings["oauth_cb"] = lambda _: (who.password, time.time() + 300, TOKEN_USER, {})
    else:
        settings |= {"sasl.username": who.user, "sasl.password": who.password}
    producer = Producer(settings)
    for number in range(COUNT):
        producer.produce(topic, f"value {number}".encode(), partition=0)
    deadline = time.monotonic() + 30
    while len(producer) and not refusals and time.monotonic() < deadline:
        producer.poll(0.05)
    if refusals:
        producer.purge()
        producer.flush(5)
        raise NotLetIn(refusals[0])
    consumer = Consumer(settings | {"group.id": f"{topic}-group", "auto.offset.reset": "earliest"})
    consumer.assign([ConfluentPartition(topic, 0, 0)])
    found = 0
    while found < COUNT and time.monotonic() < deadline:
        found += len(consumer.consume(COUNT, 0.2))
    consumer.close()
    return found


class _Said(logging.Handler):
    """What a client says in its log while it tries: those of Python tell nobody else why they were refused."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._logger = logging.getLogger(name)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def __enter__(self) -> _Said:
        self._logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)

    def refusal(self) -> str | None:
        return next((line for line in self.lines if "AuthenticationFailed" in line), None)


class _PythonTokens(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


def kafka_python(bootstrap: str, topic: str, who: Identity, folder: Path) -> int:
    settings: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": who.mechanism,
    }
    if who.has_token:
        settings["sasl_oauth_token_provider"] = _PythonTokens(who.password)
    else:
        settings |= {"sasl_plain_username": who.user, "sasl_plain_password": who.password}
    said = _Said("kafka")
    try:
        with said:
            producer = KafkaProducer(**settings, bootstrap_timeout_ms=5000)
        futures = [producer.send(topic, f"value {number}".encode(), partition=0) for number in range(COUNT)]
        for future in futures:
            future.get(30)
        producer.close()
    except KafkaTimeoutError as error:
        raise NotLetIn(said.refusal() or str(error)) from error
    consumer = KafkaConsumer(**settings, consumer_timeout_ms=5000)
    consumer.assign([PythonPartition(topic, 0)])
    consumer.seek_to_beginning()
    found = sum(1 for _, _ in zip(range(COUNT), consumer, strict=False))
    consumer.close()
    return found


class _AioTokens(AioTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def aiokafka(bootstrap: str, topic: str, who: Identity, folder: Path) -> int:
    async def story() -> int:
        settings: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": who.mechanism,
        }
        if who.has_token:
            settings["sasl_oauth_token_provider"] = _AioTokens(who.password)
        else:
            settings |= {"sasl_plain_username": who.user, "sasl_plain_password": who.password}
        producer = AIOKafkaProducer(**settings)
        said = _Said("aiokafka")
        try:
            with said:
                await producer.start()
            for number in range(COUNT):
                await producer.send_and_wait(topic, f"value {number}".encode(), partition=0)
        except KafkaConnectionError as error:
            raise NotLetIn(said.refusal() or str(error)) from error
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings)
        await consumer.start()
        found = 0
        try:
            async with asyncio.timeout(30):
                while found < COUNT:
                    found += sum(map(len, (await consumer.getmany(timeout_ms=200)).values()))
        finally:
            await consumer.stop()
        return found

    return asyncio.run(story())


def kafkajs(bootstrap: str, topic: str, who: Identity, folder: Path) -> int:
    sasl = {"mechanism": who.mechanism.lower()}
    sasl |= {"token": who.password} if who.has_token else {"username": who.user, "password": who.password}
    settings = json.dumps({"bootstrap": bootstrap, "topic": topic, "count": COUNT, "sasl": sasl})
    client = CLIENTS["kafkajs"]
    command = ["node", str(DRIVERS_SOURCES / "node" / "secured.js"), settings]
    return _told(_run(command, client.full_environment()))


def java(name: str) -> Callable[[str, str, Identity, Path], int]:
    def client(bootstrap: str, topic: str, who: Identity, folder: Path) -> int:
        settings = java_settings(bootstrap, who, folder)
        return run_java(name, settings, topic, COUNT, folder=folder)

    return client


def java_settings(bootstrap: str, who: Identity, folder: Path) -> dict[str, str]:
    settings = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": who.mechanism,
        "max.block.ms": "30000",
    }
    package = "org.apache.kafka.common.security"
    if who.has_token:
        token = folder / "token"
        token.write_text(who.password)
        return settings | {
            "sasl.jaas.config": f"{package}.oauthbearer.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": f"{package}.oauthbearer.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
        }
    module = "plain.PlainLoginModule" if who.mechanism == "PLAIN" else "scram.ScramLoginModule"
    login = f'{package}.{module} required username="{who.user}" password="{who.password}";'
    return settings | {"sasl.jaas.config": login}


def run_java(name: str, settings: dict[str, str], topic: str, count: int, pause_ms: int = 0, *, folder: Path) -> int:
    file = folder / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    allowed = settings.get("sasl.oauthbearer.token.endpoint.url", "")
    command = ["java", *JVM_OPTIONS, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={allowed}"]
    command += [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={folder / 'token'}"]
    jars = f"{TOOLS / 'java' / name / 'lib'}/*"
    if "OAUTHBEARER" in settings.values():  # Kafka 4's client does not bring what it needs for that
        jars = ":".join([jars, *(str(each) for each in TOOLS.rglob("jose4j-*.jar"))])
    command += ["-cp", jars, str(DRIVERS_SOURCES / "secured" / "Secured.java")]
    return _told(_run([*command, str(file), topic, str(count), str(pause_ms)], CLIENTS[name].full_environment()))


def _run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False
    )
    return done.stdout if done.stdout.strip() else done.stderr


def _told(output: str) -> int:
    word, _, rest = output.strip().splitlines()[-1].partition(" ")
    if word == "refused:":
        raise NotLetIn(rest)
    assert word == "read", output
    return int(rest)


def kafka_python_apart(bootstrap: str, topic: str, who: Identity, folder: Path) -> int:
    """In a process of its own: one that is refused leaves sockets behind."""
    arguments = json.dumps([bootstrap, topic, who.mechanism, who.user, who.password])
    command = [sys.executable, "-m", "tests.clients.securing", arguments]
    return _told(_run(command, CLIENTS["kafka-python"].full_environment()))


def skip_unless_here(name: str) -> None:
    if (reason := CLIENTS[name].missing()) is not None:
        pytest.skip(reason)


CALLS: dict[str, Callable[[str, str, Identity, Path], int]] = {
    "confluent": confluent,
    "kafka-python": kafka_python_apart,
    "aiokafka": aiokafka,
    "kafkajs": kafkajs,
    "java-3.9": java("java-3.9"),
    "java-4": java("java-4"),
}


if __name__ == "__main__":
    place, name, *identity = json.loads(sys.argv[1])
    try:
        print("read", kafka_python(place, name, Identity(*identity), Path()))
    except NotLetIn as refused:
        print("refused:", " ".join(str(refused).split()))
