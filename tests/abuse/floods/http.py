"""Floods of the HTTP port that occupy memory or connection slots, alongside honest logins and an open `/stream`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from chronik.security.sasl.outcomes import PLAIN
from tests.abuse.attack import Attack, AttackTarget, ProbeOptions
from tests.abuse.floods import flood_process
from tests.abuse.floods.attacker import DECLARED_BODIES, FAILED_LOGINS, SILENT, FloodSpec
from tests.abuse.floods.kafka import BUDGET, AttackFunction, sources_label

HONEST: Final = ProbeOptions(acks=-1, fetches=True, http=True)


def flood(kind: str, sources: int, connections: int) -> AttackFunction:
    """Return a strike that floods the HTTP port of the victim."""

    def strike(target: AttackTarget) -> None:
        spec = FloodSpec(
            [kind], [(target.http.host, target.http.port)], connections, sources=sources, seconds=target.count(4, 15)
        )
        done = flood_process.run_flood(target, spec)
        assert done.opened, "the attacker opened no connection"

    return strike


def _attacks() -> Iterator[Attack]:
    for sources, origin in (
        (1, "one address"),
        (flood_process.MANY_SOURCES, f"{flood_process.MANY_SOURCES} addresses"),
    ):
        kinds = (
            (
                DECLARED_BODIES,
                f"HTTP connections from {origin} declare bodies of up to 3 MiB and send none",
                max(30, sources),
            ),
            (SILENT, f"100 silent HTTP connections/s from {origin}", 0),
            (FAILED_LOGINS, f"120 HTTP connections from {origin} fail to log in again and again", 120),
        )
        for kind, what, connections in kinds:
            yield Attack(
                f"http-{kind}-{sources_label(sources)}",
                what,
                flood(kind, sources, connections),
                quick=(kind, sources) != (FAILED_LOGINS, 1),
                protocol="SASL_PLAINTEXT",
                mechanism=PLAIN,
                budget=BUDGET,
                probe=HONEST,
            )


ATTACKS: Final = tuple(_attacks())
