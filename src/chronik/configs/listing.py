"""The broker configs as a page of the docs: which have an effect, and which are only kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from chronik.configs.keys import ConfigKey, Scope
from chronik.configs.known import all_broker_keys

PAGE: Final = Path("docs", "broker-configs.md")
"""From the root of a clone."""

INTRODUCTION = """\
# Broker configs

Written by `.venv/bin/python -m chronik.configs.listing`. Every broker config of Kafka 4.3 is known here by its own
name, with its type, its default and the way in which it may be changed: in the file (`[broker]`) all of them; by
AlterConfigs, while a node runs, those for "a broker" (of one broker only) and for "the cluster" (of one or of all).
Others are refused as Kafka refuses them. Names that nobody knows are refused in the file; AlterConfigs takes them, and
DescribeConfigs does not tell their values, as in Kafka.
"""

EFFECT = """
## With an effect
Where a default is not Kafka's, [differences-from-kafka.md](differences-from-kafka.md) says why. Those that name a key
of the node's own config are set there, and only told here.
"""

KEPT = """
## Kept, and without an effect
They are stored and described, for scripts and tools that set them. Two are refused in the file where they ask for what
is not here: `security.inter.broker.protocol`, if it names no listener, and `controller.listener.names`, if it names one
of `listeners`. Those of TLS (`ssl.…`) do hold, but from the file alone: [security.md](security.md).
"""

CHANGED_BY = {Scope.READ_ONLY: "a restart", Scope.PER_BROKER: "a broker", Scope.CLUSTER_WIDE: "the cluster"}


def page() -> str:
    keys = sorted(all_broker_keys(), key=lambda key: key.name)
    effective = _rows((key for key in keys if not key.kept), described=True)
    kept = _rows((key for key in keys if key.kept), described=False)
    return "\n".join([INTRODUCTION + EFFECT.rstrip(), *effective, KEPT.rstrip(), *kept, ""])


def _rows(keys: Iterable[ConfigKey], *, described: bool) -> Iterator[str]:
    yield ""
    yield "| name | type | default | changed by |" + (" what |" if described else "")
    yield "|---|---|---|---|" + ("---|" if described else "")
    for key in keys:
        cells = [f"`{key.name}`", key.type.name.lower(), _default(key), CHANGED_BY[key.scope]]
        yield f"| {' | '.join(cells + [key.doc] * described)} |"


def _default(key: ConfigKey) -> str:
    if key.fallbacks:
        return " or ".join(f"`{fallback.name}`" for fallback in key.fallbacks)
    if key.default is None:
        return "none"
    return f"`{key.default}`" if key.default else "empty"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
