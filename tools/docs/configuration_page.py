"""Generator of docs/reference/configuration.md: the keys of a node's configuration file, from NodeConfig."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

from chronik.config import CONFIG_KEYS, NodeConfig
from tools.docs.python_api import SOURCES, iter_fields

PAGE: Final = Path("docs", "reference", "configuration.md")
INTRODUCTION: Final = """\
# Node configuration

This page lists the keys of a node's configuration file. A node reads one TOML file, `chronik start --config FILE`:

```toml
node_id = 1
data_dir = "data/node1"
kafka = "127.0.0.1:9092"
flush = "group"                 # or "os"

[broker]                        # Kafka's broker configs, under their own names
"num.partitions" = 3
"log.retention.ms" = 86400000
```

Later sources override earlier ones: defaults, the file, environment variables, and
[command-line options](cli-reference.md#chronik-start). The environment variable of a key is `CHRONIK_` and the key in
upper case, such as `CHRONIK_NODE_ID`. Set `peers` and `broker` in the file only. `CHRONIK_CONFIG` names the file.
Unknown keys are rejected. Changes take effect after a restart.

For the keys under `[broker]`, see [Broker configs](broker-configs.md). For certificates, users and ACLs, see
[Security](../operate/security.md). For clusters, see [How a cluster works](../operate/cluster.md).
"""
SECTIONS: Final = {
    "Node": ("node_id", "data_dir", "rack", "broker"),
    "Client listener": ("kafka", "advertised"),
    "HTTP server": ("http", "http_token", "http_keystore", "http_truststore", "registry"),
    "Single sign-on": (
        "oidc_issuer",
        "oidc_client_id",
        "oidc_client_secret",
        "oidc_redirect_url",
        "oidc_cookie_secret",
        "oidc_scopes",
        "oidc_principal_claim",
        "oidc_principal_rules",
    ),
    "Durability and replication": ("flush", "replication_factor", "min_insync_replicas", "offset_acks", "read_quorum"),
    "Cluster": (
        "peers",
        "cluster_name",
        "cluster_secret",
        "peer_keystore",
        "peer_truststore",
        "peer_tls",
        "broker_session_ms",
    ),
    "Metadata log": ("metadata_snapshot_entries", "metadata_snapshot_bytes", "metadata_kept_bytes"),
    "Logging": ("log_level", "log_format"),
}
PEERS: Final = """
Each node that creates the cluster, including this one, has a `[[peers]]` table. Nodes that join later need none.

| key | default | description |
|---|---|---|
| `peers.id` | required | Id of the node. |
| `peers.kafka` | required | Address of the node for clients. |
| `peers.raft` | required | Address of the node for its peers. It must be reachable from all nodes. |
| `peers.voter` | see below | Whether the node votes when the cluster is created. All files must agree. |

By default, the five nodes with the lowest ids vote, or three if there are fewer than five.
"""


def generate_page() -> str:
    tree = ast.parse((SOURCES / "chronik" / "config.py").read_text(encoding="utf-8"))
    (node,) = [each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == NodeConfig.__name__]
    abouts = {name.partition(":")[0]: about for name, about in iter_fields(node)}
    listed = [key for keys in SECTIONS.values() for key in keys]
    assert sorted(listed) == sorted(CONFIG_KEYS), "every config key must be in one section"
    return INTRODUCTION + "".join(_section(title, keys, abouts) for title, keys in SECTIONS.items())


def _section(title: str, keys: tuple[str, ...], abouts: dict[str, str]) -> str:
    rows = "".join(f"| `{key}` | {_default(key)} | {abouts[key]} |\n" for key in keys)
    return f"\n## {title}\n| key | default | description |\n|---|---|---|\n{rows}" + (PEERS if "peers" in keys else "")


def _default(key: str) -> str:
    value = getattr(NodeConfig(), key)
    if value is None or value in ((), {}):
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
