"""The events of the demo: orders as JSON, as a shop might send them, and a few that are not what they should be."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator

from chronik.client.records import ConsumedRecord, OutgoingRecord

TOPIC = "orders"
SEED = 1
CUSTOMERS = ("ada", "alan", "barbara", "edsger", "grace", "ken")
COUNTRIES = ("DE", "FR", "IT", "NL")
BROKEN_EVERY = 5000
"""One event in so many is no JSON: it must not stop the pipeline, and must not get lost."""


def orders(count: int, first: int = 0) -> Iterator[OutgoingRecord]:
    """Makes the same orders each time. In the second half they have one more field, as when programs change."""
    chance = random.Random(SEED + first)
    for number in range(first, first + count):
        customer = chance.choice(CUSTOMERS)
        order = {"number": number, "customer": customer, "euros": chance.randint(1, 99)}
        if number >= first + count // 2:
            order["country"] = chance.choice(COUNTRIES)
        value = json.dumps(order).encode()
        yield OutgoingRecord(value[:-1] if number % BROKEN_EVERY == BROKEN_EVERY - 1 else value, customer.encode())


def by_customer(records: Iterable[OutgoingRecord | ConsumedRecord]) -> dict[bytes | None, list[bytes | None]]:
    """Groups their values by customer, in their order."""
    found: dict[bytes | None, list[bytes | None]] = {}
    for record in records:
        found.setdefault(record.key, []).append(record.value)
    return found
