"""The demo's records: orders of a shop as JSON, some of them invalid."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator

from chronik.client.records import ConsumedRecord, OutgoingRecord

TOPIC = "orders"
SEED = 1
CUSTOMERS = ("ada", "alan", "barbara", "edsger", "grace", "ken")
COUNTRIES = ("DE", "FR", "IT", "NL")
INVALID_EVERY = 5000
"""One record in this many is invalid JSON; it must become a dead-letter record without stopping the pipeline."""


def generate_orders(count: int, first: int = 0) -> Iterator[OutgoingRecord]:
    """Generate orders deterministically. The second half has one more field, as after a schema change."""
    rng = random.Random(SEED + first)
    for number in range(first, first + count):
        customer = rng.choice(CUSTOMERS)
        order = {"number": number, "customer": customer, "euros": rng.randint(1, 99)}
        if number >= first + count // 2:
            order["country"] = rng.choice(COUNTRIES)
        value = json.dumps(order).encode()
        yield OutgoingRecord(value[:-1] if number % INVALID_EVERY == INVALID_EVERY - 1 else value, customer.encode())


def group_by_customer(records: Iterable[OutgoingRecord | ConsumedRecord]) -> dict[bytes | None, list[bytes | None]]:
    """Group the values of records by customer, in order."""
    found: dict[bytes | None, list[bytes | None]] = {}
    for record in records:
        found.setdefault(record.key, []).append(record.value)
    return found
