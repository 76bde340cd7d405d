"""The program in docs/guides/transactions.md, which copies records between topics exactly once."""

from __future__ import annotations

import subprocess
import sys
import time

from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.testing.plugin import BrokerFactory
from tests.docs.blocks import ROOT, parse_blocks

PAGE = ROOT / "docs" / "guides" / "transactions.md"
WAIT_SECONDS_MAX = 60.0


def test_transactional_copy_loop_copies_records_once(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()  # its own broker, because other tests use the same topic names
    (program,) = [block.text for block in parse_blocks(PAGE) if block.language == "python"]
    for topic in ("orders", "bills"):
        broker.create_topic(topic)
    values = [b"tea", b"salt", b"milk"]
    with broker.cluster() as cluster:
        Producer(cluster).send("orders", [OutgoingRecord(value) for value in values])
    assert "127.0.0.1:9092" in program
    process = subprocess.Popen([sys.executable, "-c", program.replace("127.0.0.1:9092", broker.bootstrap)])
    try:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while len(billed := [record.value for record in broker.records("bills")]) < len(values):
            assert process.poll() is None, "the program exited"
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert billed == values
    finally:
        process.kill()
        process.wait()
