"""The program of docs/transactions.md copies what is in a topic to another, exactly once, until somebody stops it."""

from __future__ import annotations

import subprocess
import sys
import time

from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.testing.plugin import BrokerFactory
from tests.docs.blocks import ROOT, blocks_of

PAGE = ROOT / "docs" / "transactions.md"
WAIT_SECONDS_MAX = 60.0


def test_orders_become_bills(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()  # others have topics of these names, too
    (program,) = [block.text for block in blocks_of(PAGE) if block.language == "python"]
    for topic in ("orders", "bills"):
        broker.create_topic(topic)
    values = [b"tea", b"salt", b"milk"]
    with broker.cluster() as cluster:
        Producer(cluster).send("orders", [OutgoingRecord(value) for value in values])
    assert "127.0.0.1:9092" in program
    running = subprocess.Popen([sys.executable, "-c", program.replace("127.0.0.1:9092", broker.bootstrap)])
    try:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while len(billed := [record.value for record in broker.records("bills")]) < len(values):
            assert running.poll() is None, "the program ended"
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert billed == values
    finally:
        running.kill()
        running.wait()
