"""docs/configuration.md: the keys of a node's own file, from the class that holds them."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

from chronik.config import CONFIG_KEYS, NodeConfig
from tools.docs.python_api import SOURCES, fields_of

PAGE: Final = Path("docs", "configuration.md")
INTRODUCTION: Final = """\
# Configuration of a node

Written by `.venv/bin/python -m tools.docs`, from `config.py`. A node is configured by one TOML file
(`chronik start --config FILE`, or `CHRONIK_CONFIG`). Every key but `peers` and `broker` can also stand in the
environment, as `CHRONIK_NODE_ID` and so on. The [command line](cli-reference.md#chronik-start) has some of them, and
counts most. A key that nobody knows is refused.

```toml
node_id = 1
data_dir = "data/node1"
kafka = "127.0.0.1:9092"
flush = "group"                 # or "os"

[broker]                        # Kafka's own broker configs, by their own names
"num.partitions" = 3
"log.retention.ms" = 86400000
```

What may stand under `[broker]`: [broker-configs.md](broker-configs.md). `[[peers]]` and what a cluster needs:
[cluster.md](cluster.md#configuration). Certificates, logins and rights: [security.md](security.md).

| key | default | |
|---|---|---|
"""


def page() -> str:
    tree = ast.parse((SOURCES / "chronik" / "config.py").read_text(encoding="utf-8"))
    (node,) = [each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == NodeConfig.__name__]
    abouts = {name.partition(":")[0]: about for name, about in fields_of(node)}
    rows = [
        f"| `{key}` | {_default(key)} | {abouts.get(key, '')} |\n"
        for key in NodeConfig.__struct_fields__
        if key in CONFIG_KEYS
    ]
    return INTRODUCTION + "".join(rows)


def _default(key: str) -> str:
    value = getattr(NodeConfig(), key)
    if value is None or value in ((), {}):
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
