"""Floods of the schema registry: many connections that repeat expensive requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.abuse.attack import Attack, AttackTarget, ProbeOptions, prepare_nothing
from tests.abuse.floods import flood_process
from tests.abuse.floods.attacker import DECLARED_SCHEMAS, FloodSpec
from tests.abuse.floods.kafka import BUDGET, AttackFunction

HONEST: Final = ProbeOptions(acks=-1, fetches=True)
CONNECTIONS: Final = 200
SUBJECTS_FEW, SUBJECTS = 2_000, 100_000
REGISTRATION_SECONDS_MAX: Final = 600.0
REGISTRATION_CONNECTIONS: Final = 32


def register_subjects(target: AttackTarget) -> None:
    """Register subjects as an honest user would, on one node."""
    subjects = target.count(SUBJECTS_FEW, SUBJECTS)
    spec = FloodSpec(
        ["registry-subject"],
        [(target.http.host, target.http.port)],
        connections=REGISTRATION_CONNECTIONS,
        seconds=REGISTRATION_SECONDS_MAX,
        requests=subjects,
    )
    done = flood_process.wait_for_flood(flood_process.start_flood(spec), spec.seconds)
    assert done.responses >= subjects, f"{done.responses} of {subjects} responses"


def flood_nodes(kind: str) -> AttackFunction:
    """Return a strike that floods the HTTP ports of all nodes."""

    def strike(target: AttackTarget) -> None:
        spec = FloodSpec(
            [kind],
            [(node.http.host, node.http.port) for node in target.nodes],
            connections=target.count(CONNECTIONS // 5, CONNECTIONS),
            seconds=target.count(3, 12),
        )
        done = flood_process.run_flood(target, spec)
        assert done.opened, "the attacker opened no connection"

    return strike


KINDS: Final[tuple[tuple[str, str, Callable[[AttackTarget], None], bool], ...]] = (
    ("registry-list-subjects", "lists of 100,000 subjects", register_subjects, True),
    ("registry-list-schemas", "lists of 1,000 of 100,000 versions", register_subjects, False),
    ("registry-list-last-schemas", "lists of schemas after the last one of 100,000", register_subjects, False),
    ("registry-subjects-of-id", "lists of the 100,000 subjects that have an id", register_subjects, False),
    ("registry-unknown-ids", "lookups of unknown ids, which a majority confirms", prepare_nothing, True),
    ("registry-large-schemas", "registrations of large schemas", prepare_nothing, False),
    (DECLARED_SCHEMAS, "registrations that declare bodies of up to 3 MiB and send none", prepare_nothing, False),
)

ATTACKS: Final = tuple(
    Attack(
        f"flood-{kind}",
        f"{CONNECTIONS} HTTP connections to each node repeat {description}",
        flood_nodes(kind),
        prepare,
        quick=quick,
        budget=BUDGET,
        probe=HONEST,
    )
    for kind, description, prepare, quick in KINDS
)
