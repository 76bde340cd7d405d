"""Faults of a network direction, and the nftables rules that implement them. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

SLOW_DEVICE = "slow"
SLOW_MARK = 7
TABLE = "chaos"

Direction: TypeAlias = tuple[int, int]
"""The source and target of packets. The opposite direction is separate."""


class Barrier(Enum):
    """A way to block packets."""

    DROPS = "drop"
    """Packets are dropped silently."""
    REJECTS = "meta l4proto tcp reject with tcp reset"
    """Packets are rejected with a TCP reset to their sender."""


@dataclass(frozen=True)
class LossyLink:
    """A lossy link: packets are delayed, lost, duplicated and, with different delays, reordered."""

    delay_s: float = 0.0
    spread_s: float = 0.0
    """Maximum random addition to the delay of each packet."""
    loss: float = 0.0
    twice: float = 0.0
    """Fractions of the packets that are lost and duplicated."""


Way: TypeAlias = Barrier | LossyLink


def build_ruleset(ways: Mapping[Direction, Way], address: Mapping[int, str]) -> str:
    """Return the complete nftables rule set, which is applied atomically. Delayed packets go to the slow device."""
    slow = [direction for direction, way in ways.items() if isinstance(way, LossyLink)]
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
