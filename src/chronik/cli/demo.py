"""`chronik demo`: a broker in a temporary folder, records in and out, a crash, and what came of it."""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from chronik.cli.arguments import add_debug_argument
from chronik.cli.output import table
from chronik.client.producer import Producer
from chronik.client.records import ConsumedRecord, OutgoingRecord
from chronik.errors import invariant
from chronik.protocol.compression import Codec
from chronik.testing.broker import Broker

TOPIC = "orders"
PARTITIONS = 3
RECORDS = 10_000
SEED = 1
CUSTOMERS = ("ada", "alan", "barbara", "edsger", "grace", "ken")

WHERE_NEXT = """\
Where to look next:
  chronik start                                 a broker on 127.0.0.1:9092, data in ./data
  echo hello | chronik produce greetings        any Kafka client will do as well
  chronik consume greetings --json
  chronik topics describe greetings
  docs/testing.md                               this broker in your own tests, with faults on demand"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)
    add_debug_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    broker = Broker()
    try:
        _show(broker)
        with _step("stopping the broker and removing its folder"):
            broker.close()
    finally:
        broker.close()
    print(f"\n{WHERE_NEXT}")
    return 0


def _show(broker: Broker) -> None:
    with _step("starting a broker in a temporary folder"):
        broker.start()
    print(f"    it answers Kafka clients on {broker.bootstrap}, as process {broker.pid}")
    with _step(f"creating the topic {TOPIC} with {PARTITIONS} partitions"):
        broker.create_topic(TOPIC, PARTITIONS)
    writing = f"writing {RECORDS:,} orders, zstd-compressed; every one is on disk when it is acknowledged"
    with _step(writing), broker.cluster() as cluster:
        written = Producer(cluster, codec=Codec.ZSTD).send(TOPIC, _orders())
    invariant(sum(each.record_count for each in written) == RECORDS, "not every record was acknowledged")
    with _step("killing the broker as a crash would (SIGKILL)"):
        broker.kill()
    with _step("starting it again on the same folder"):
        broker.start()
    with _step("reading everything back"):
        records = broker.records(TOPIC)
    invariant(len(records) == RECORDS, f"{len(records)} of {RECORDS} records came back")
    invariant(_by_customer(records) == _by_customer(_orders()), "the orders of a customer came back in another order")
    print(f"    {len(records):,} of {RECORDS:,} orders are there, in their order\n")
    print(_totals(records) + "\n")


def _orders() -> Iterator[OutgoingRecord]:
    chance = random.Random(SEED)
    for number in range(RECORDS):
        customer = chance.choice(CUSTOMERS)
        yield OutgoingRecord(f"order {number}: {chance.randint(1, 99)} EUR".encode(), customer.encode())


def _by_customer(records: Iterable[OutgoingRecord | ConsumedRecord]) -> dict[bytes | None, list[bytes | None]]:
    orders: dict[bytes | None, list[bytes | None]] = {}
    for record in records:
        orders.setdefault(record.key, []).append(record.value)
    return orders


def _totals(records: list[ConsumedRecord]) -> str:
    """The same key always stands in the same partition."""
    orders: Counter[tuple[str, int]] = Counter()
    amounts: Counter[str] = Counter()
    for record in records:
        customer = (record.key or b"").decode()
        orders[customer, record.partition] += 1
        amounts[customer] += int((record.value or b"").split()[2])
    rows = [(customer, partition, count, amounts[customer]) for (customer, partition), count in sorted(orders.items())]
    return table(("CUSTOMER", "PARTITION", "ORDERS", "EUR"), rows)


@contextmanager
def _step(what: str) -> Iterator[None]:
    print(f"… {what}", end="", flush=True)
    began = time.perf_counter()
    yield
    print(f": {(time.perf_counter() - began) * 1000:.0f} ms")
