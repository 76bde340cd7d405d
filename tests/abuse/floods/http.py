"""Floods of the HTTP port that occupy memory or connection slots, alongside honest logins and an open `/stream`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from chronik.security.sasl.outcomes import PLAIN
from tests.abuse.attack import Attack, ProbeOptions, Target
from tests.abuse.floods import launch
from tests.abuse.floods.attacker import DECLARED_BODIES, FAILED_LOGINS, SILENT, Spec
from tests.abuse.floods.kafka import BUDGET, Strike, named

HONEST: Final = ProbeOptions(acks=-1, fetches=True, http=True)


def flood(kind: str, sources: int, connections: int) -> Strike:
    """Return a strike that floods the HTTP port of the victim."""

    def strike(target: Target) -> None:
        spec = Spec(
            [kind], [(target.http.host, target.http.port)], connections, sources=sources, seconds=target.count(4, 15)
        )
        done = launch.run(target, spec)
        assert done.opened, "the attacker opened no connection"

    return strike


def _attacks() -> Iterator[Attack]:
    for sources, origin in ((1, "one address"), (launch.MANY_SOURCES, f"{launch.MANY_SOURCES} addresses")):
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
                f"http-{kind}-{named(sources)}",
                what,
                flood(kind, sources, connections),
                quick=(kind, sources) != (FAILED_LOGINS, 1),
                protocol="SASL_PLAINTEXT",
                mechanism=PLAIN,
                budget=BUDGET,
                probe=HONEST,
            )


ATTACKS: Final = tuple(_attacks())
