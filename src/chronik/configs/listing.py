"""Generator of the reference page of broker configs (docs/reference/broker-configs.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from chronik.configs.broker_key_lookup import iter_broker_keys
from chronik.configs.keys import ConfigKey, UpdateMode

PAGE: Final = Path("docs", "reference", "broker-configs.md")
"""Path of the documentation page that lists the broker configs, relative to the repository root."""

INTRODUCTION = """\
# Broker configs

Chronik accepts every broker config of Kafka 4.3 with its name, type and update mode. This page lists them with their
defaults.

## Set a broker config
Set configs in the `[broker]` table of the [configuration file](configuration.md), or change them at run time with
AlterConfigs, for example with Kafka's `kafka-configs`. The update mode determines how a config can be changed, as in
Kafka:

| update mode | change |
|---|---|
| read-only | in the configuration file, with a restart |
| per-broker | also with AlterConfigs, for a single broker |
| cluster-wide | also with AlterConfigs, for a single broker or for all brokers |

Unknown names are rejected in the configuration file. AlterConfigs accepts them, and DescribeConfigs does not return
their values, as in Kafka.
"""

EFFECT = """
## Supported
Some configs have the same meaning as a key of the configuration file, such as `node.id` and `node_id`. Set the key: the
config only reports its value. For defaults that differ from Kafka's, see
[Differences from Kafka](differences-from-kafka.md#different-defaults).
"""

KEPT = """
## Accepted, without effect
Chronik stores and describes these configs for scripts and tools that set them. There are three exceptions in the
configuration file:

- `security.inter.broker.protocol` is rejected if it names no listener.
- `controller.listener.names` is rejected if it names one of `listeners`.
- The TLS configs (`ssl.…`) have an effect, but only in the configuration file. See [Security](../operate/security.md).
"""

CHANGED_BY = {
    UpdateMode.READ_ONLY: "read-only",
    UpdateMode.PER_BROKER: "per-broker",
    UpdateMode.CLUSTER_WIDE: "cluster-wide",
}


def render_broker_config_page() -> str:
    """Render the documentation page of the broker configs as Markdown."""
    keys = sorted(iter_broker_keys(), key=lambda key: key.name)
    effective = _rows((key for key in keys if not key.kept), described=True)
    kept = _rows((key for key in keys if key.kept), described=False)
    return "\n".join([INTRODUCTION + EFFECT.rstrip(), *effective, KEPT.rstrip(), *kept, ""])


def _rows(keys: Iterable[ConfigKey], *, described: bool) -> Iterator[str]:
    yield ""
    yield "| name | type | default | update mode |" + (" description |" if described else "")
    yield "|---|---|---|---|" + ("---|" if described else "")
    for key in keys:
        cells = [f"`{key.name}`", key.type.name.lower(), _format_default(key), CHANGED_BY[key.update_mode]]
        yield f"| {' | '.join(cells + [key.doc] * described)} |"


def _format_default(key: ConfigKey) -> str:
    if key.fallbacks:
        return " or ".join(f"`{fallback.name}`" for fallback in key.fallbacks)
    if key.default is None:
        return "none"
    return f"`{key.default}`" if key.default else "empty"


if __name__ == "__main__":
    PAGE.write_text(render_broker_config_page(), encoding="utf-8")
