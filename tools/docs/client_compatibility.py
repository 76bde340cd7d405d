"""Generator of docs/reference/client-compatibility.md from the outcomes that a run of tests/clients recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = Path("docs", "reference", "client-compatibility.md")
RESULTS_FILE: Final = Path("docs", "reference", "client-compatibility.json")
COLUMNS: Final = (
    "produce and consume",
    "compression",
    "consumer groups",
    "cooperative rebalance",
    "idempotent producer",
    "transactions",
    "admin",
    "TLS",
    "SASL",
    "reauthentication",
)
LABELS: Final = {
    "aiokafka": "aiokafka (Python)",
    "confluent": "confluent-kafka (Python, librdkafka)",
    "java-3.9": "Apache Kafka Java client 3.9",
    "java-4": "Apache Kafka Java client 4",
    "kafka-python": "kafka-python",
    "kafka-python-0.10.0": "kafka-python",
    "kafka-python-0.10.1": "kafka-python",
    "kafka-python-2.6.0": "kafka-python",
    "kafkajs": "KafkaJS (Node.js)",
    "kcat": "kcat (librdkafka)",
    "Kafka's own tools": "Apache Kafka command-line tools",
}
"""Names of clients in the table, by their names in the results."""

INTRODUCTION: Final = """\
# Client compatibility

This page lists the Kafka clients that Chronik is tested with, and the tested features. For features of Kafka that
Chronik does not support, see [Differences from Kafka](differences-from-kafka.md#not-supported).

A cell contains the number of passed tests of a feature, against a single broker or a cluster of three nodes. An empty
cell means that the feature is not tested, usually because the client does not have it.

"""
OTHER_TESTS: Final = """
Kafka Streams, Spark and MirrorMaker 2 have separate tests. See [Transactions](../guides/transactions.md),
[Topics as tables](../guides/pipeline.md) and [Migrate from Apache Kafka](../guides/from-apache-kafka.md).

## Update this page
The tests in `tests/clients` write their results to a JSON file if `CHRONIK_RECORD_CLIENTS` names it.
`.venv/bin/python -m tools.docs` generates this page from `docs/reference/client-compatibility.json`.
"""


def generate_page() -> str:
    path = ROOT / RESULTS_FILE
    return (
        INTRODUCTION
        + (
            format_table(json.loads(path.read_text(encoding="utf-8")))
            if path.exists()
            else "No results are recorded yet.\n"
        )
        + OTHER_TESTS
    )


def format_table(clients: dict[str, Any]) -> str:
    lines = [f"| client | version | {' | '.join(COLUMNS)} |", "|---|---|" + "---|" * len(COLUMNS)]
    for name, client in clients.items():
        unknown = set(client["features"]) - set(COLUMNS)
        assert not unknown, f"features without a column: {unknown}"
        cells = [_cell(client["features"].get(column, {})) for column in COLUMNS]
        lines.append(f"| {LABELS.get(name, name)} | {client['version']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(outcomes: dict[str, int]) -> str:
    """Format the outcomes of a feature; skipped tests do not count."""
    if outcomes.get("failed"):
        return f"**{outcomes['failed']} failed**, {outcomes.get('passed', 0)} passed"
    return f"{outcomes['passed']} passed" if outcomes.get("passed") else ""
