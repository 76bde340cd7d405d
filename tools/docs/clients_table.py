"""docs/client-compatibility.md: which client was seen to do what, from the file that a run of tests/clients wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = Path("docs", "client-compatibility.md")
KEPT: Final = Path("docs", "client-compatibility.json")
COLUMNS: Final = (
    "write and read",
    "compression",
    "groups",
    "cooperative rebalance",
    "idempotent producer",
    "transactions",
    "administration",
    "TLS",
    "passwords and tokens",
    "sessions that end",
)
INTRODUCTION: Final = """\
# Clients that work

Written by `.venv/bin/python -m tools.docs` from `docs/client-compatibility.json`, which a run of the tests has written:

```text
CHRONIK_RECORD_CLIENTS=docs/client-compatibility.json .venv/bin/pytest tests/clients
```

A number says how many tests of that kind the client has passed against a Chronik broker, or a cluster of three. An
empty cell says that nothing of the kind was tried: most often since the client does not have it. Kafka Streams, Spark
and MirrorMaker 2 have tests of their own: [transactions.md](transactions.md), [pipeline.md](pipeline.md) and
[from-apache-kafka.md](from-apache-kafka.md). What is different from Kafka:
[differences-from-kafka.md](differences-from-kafka.md).

"""


def page() -> str:
    path = ROOT / KEPT
    return INTRODUCTION + (
        table(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else "No run is kept yet.\n"
    )


def table(clients: dict[str, Any]) -> str:
    lines = [f"| client | version | {' | '.join(COLUMNS)} |", "|---|---|" + "---|" * len(COLUMNS)]
    for name, client in clients.items():
        unknown = set(client["features"]) - set(COLUMNS)
        assert not unknown, f"features without a column: {unknown}"
        cells = [_cell(client["features"].get(column, {})) for column in COLUMNS]
        lines.append(f"| {name} | {client['version']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(ended: dict[str, int]) -> str:
    """What was skipped was not tried."""
    if ended.get("failed"):
        return f"**{ended['failed']} failed**, {ended.get('passed', 0)} passed"
    return f"{ended['passed']} passed" if ended.get("passed") else ""
