"""What may be wrong with the way from one place to another, and the firewall that makes it so (nftables). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

SLOW_DEVICE = "slow"
SLOW_MARK = 7
TABLE = "chaos"

Direction: TypeAlias = tuple[int, int]
"""From one place of the network to another; the way back is a direction of its own."""


class Barrier(Enum):
    DROPS = "drop"
    """Silence: nothing arrives, and nobody is told."""
    REJECTS = "meta l4proto tcp reject with tcp reset"
    """Nothing arrives, and who sent it is told that the connection is over."""


@dataclass(frozen=True)
class Line:
    """Packets arrive late, some of them never, some of them twice; with different delays, in another order too."""

    delay_s: float = 0.0
    spread_s: float = 0.0
    """At most so much is added to the delay of each packet."""
    loss: float = 0.0
    twice: float = 0.0
    """Shares of the packets."""


Way: TypeAlias = Barrier | Line


def ruleset(ways: Mapping[Direction, Way], address: Mapping[int, str]) -> str:
    """All of it, to take effect at once. What is on a Line goes to the slow device, which hands it back."""
    slow = [direction for direction, way in ways.items() if isinstance(way, Line)]
    lines = [f"table ip {TABLE}", f"delete table ip {TABLE}", f"table ip {TABLE} {{"]
    lines += _chain("prerouting", "mangle", {f"meta mark set {SLOW_MARK}": slow}, address)
    barriers = {barrier.value: [direction for direction, way in ways.items() if way is barrier] for barrier in Barrier}
    lines += _chain("forward", "filter", barriers, address)
    return "\n".join([*lines, "}"]) + "\n"


def _chain(hook: str, priority: str, verdicts: Mapping[str, list[Direction]], address: Mapping[int, str]) -> list[str]:
    rules = [
        f"ip saddr . ip daddr {{ {_pairs(directions, address)} }} {verdict}"
        for verdict, directions in verdicts.items()
        if directions
    ]
    head = f"chain {hook} {{ type filter hook {hook} priority {priority};"
    return [head, f'iifname "{SLOW_DEVICE}" accept', *rules, "}"]


def _pairs(directions: list[Direction], address: Mapping[int, str]) -> str:
    return ", ".join(f"{address[source]} . {address[target]}" for source, target in sorted(directions))
