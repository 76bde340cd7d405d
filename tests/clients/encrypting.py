"""What each client does over TLS: writes some records and reads them back, or is refused."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition

from .catalogue import CLIENTS, DRIVERS_SOURCES, JVM_OPTIONS, PROJECT, TOOLS

COUNT = 20
CLIENT_SECONDS_MAX = 90.0
READ_SECONDS_MAX = 30.0


class NotLetIn(Exception):
    """With what the client says about it."""


class Trust(NamedTuple):
    """Files: whom the client trusts, and what it shows, if anything (its key and certificate, in PEM)."""

    ca: str
    pem: str | None = None


def confluent_settings(bootstrap: str, trust: Trust) -> dict[str, Any]:
    settings = {"bootstrap.servers": bootstrap, "security.protocol": "SSL", "ssl.ca.location": trust.ca}
    if trust.pem is not None:
        settings |= {"ssl.certificate.location": trust.pem, "ssl.key.location": trust.pem}
    return settings


def confluent(bootstrap: str, topic: str, trust: Trust, folder: Path) -> int:
    refusals: list[str] = []

    def failed(error: KafkaError) -> None:
        if error.code() in (KafkaError._SSL, KafkaError._ALL_BROKERS_DOWN):
            refusals.append(error.str())

    settings = confluent_settings(bootstrap, trust) | {"error_cb": failed}
    producer = Producer(settings)
    for number in range(COUNT):
        producer.produce(topic, f"value {number}".encode(), partition=0)
    deadline = time.monotonic() + READ_SECONDS_MAX
    while len(producer) and not refusals and time.monotonic() < deadline:
        producer.poll(0.05)
    if refusals:
        producer.purge()
        producer.flush(5)
        raise NotLetIn(refusals[0])
    consumer = Consumer(settings | {"group.id": f"{topic}-group"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = 0
    while found < COUNT and time.monotonic() < deadline:
        found += len(consumer.consume(COUNT, 0.2))
    consumer.close()
    return found


def kafka_python(bootstrap: str, topic: str, trust: Trust, folder: Path) -> int:
    """In a process of its own: it leaves sockets open when it cannot connect."""
    call = f"print('read', kafka_python_here({bootstrap!r}, {topic!r}, {tuple(trust)!r}))"
    code = f"from tests.clients.encrypting import kafka_python_here\n{call}"
    return _told([sys.executable, "-W", "ignore", "-c", code], dict(os.environ))


def kafka_python_here(bootstrap: str, topic: str, files: tuple[str, str | None]) -> int:
    trust = Trust(*files)
    settings: dict[str, Any] = {"bootstrap_servers": bootstrap, "security_protocol": "SSL", "ssl_cafile": trust.ca}
    if trust.pem is not None:
        settings |= {"ssl_certfile": trust.pem, "ssl_keyfile": trust.pem}
    try:
        producer = KafkaProducer(**settings, bootstrap_timeout_ms=10_000)
        futures = [producer.send(topic, f"value {number}".encode(), partition=0) for number in range(COUNT)]
        for future in futures:
            future.get(READ_SECONDS_MAX)
        producer.close()
    except Exception as error:
        print(f"refused: {error!r}".replace("\n", " "), flush=True)
        os._exit(0)
    consumer = KafkaConsumer(**settings, consumer_timeout_ms=10_000)
    consumer.assign([PythonPartition(topic, 0)])
    consumer.seek_to_beginning()
    found = sum(1 for _, _ in zip(range(COUNT), consumer, strict=False))
    consumer.close()
    return found


def aiokafka(bootstrap: str, topic: str, trust: Trust, folder: Path) -> int:
    async def story() -> int:
        context = ssl.create_default_context(cafile=trust.ca)
        if trust.pem is not None:
            context.load_cert_chain(trust.pem)
        settings: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "security_protocol": "SSL",
            "ssl_context": context,
        }
        producer = AIOKafkaProducer(**settings)
        try:
            await producer.start()
            for number in range(COUNT):
                await producer.send_and_wait(topic, f"value {number}".encode(), partition=0)
        except Exception as error:
            raise NotLetIn(f"{error!r} {error.__cause__!r}") from error
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings)
        await consumer.start()
        found = 0
        try:
            async with asyncio.timeout(READ_SECONDS_MAX):
                while found < COUNT:
                    found += sum(map(len, (await consumer.getmany(timeout_ms=200)).values()))
        finally:
            await consumer.stop()
        return found

    return asyncio.run(story())


def kafkajs(bootstrap: str, topic: str, trust: Trust, folder: Path) -> int:
    settings = {"bootstrap": bootstrap, "topic": topic, "count": COUNT, "ca": trust.ca, "pem": trust.pem}
    command = ["node", str(DRIVERS_SOURCES / "node" / "encrypted.js"), json.dumps(settings)]
    return _told(command, CLIENTS["kafkajs"].full_environment())


def java(name: str) -> Callable[[str, str, Trust, Path], int]:
    def client(bootstrap: str, topic: str, trust: Trust, folder: Path) -> int:
        settings = {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": trust.ca,
            "max.block.ms": "30000",
        }
        if trust.pem is not None:
            settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": trust.pem}
        file = folder / "client.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = ["java", *JVM_OPTIONS, "-cp", f"{TOOLS / 'java' / name / 'lib'}/*"]
        command += [str(DRIVERS_SOURCES / "secured" / "Secured.java"), str(file), topic, str(COUNT), "0"]
        return _told(command, CLIENTS[name].full_environment())

    return client


def _told(command: list[str], environment: dict[str, str]) -> int:
    done = subprocess.run(
        command,
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=CLIENT_SECONDS_MAX,
        check=False,
    )
    output = done.stdout if done.stdout.strip() else done.stderr
    word, _, rest = output.strip().splitlines()[-1].partition(" ")
    if word == "refused:":
        raise NotLetIn(rest)
    assert word == "read", output
    return int(rest)


CALLS: dict[str, Callable[[str, str, Trust, Path], int]] = {
    "confluent": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "kafkajs": kafkajs,
    "java-3.9": java("java-3.9"),
    "java-4": java("java-4"),
}
