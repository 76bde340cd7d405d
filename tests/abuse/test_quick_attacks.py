"""The quick attacks of `make abuse`, with small counts."""

from __future__ import annotations

import pytest

from tests.abuse.attack import Attack
from tests.abuse.catalogue import ATTACKS
from tests.abuse.run import measure
from tests.run_size import SEED

ALSO_AGAINST_CLUSTER = ("pipelined-unread", "flood-list-transactions-pattern-120-addresses")

QUICK = [
    (attack, kind)
    for attack in ATTACKS.values()
    if attack.quick
    for kind in attack.targets
    if kind == attack.targets[0] or attack.name in ALSO_AGAINST_CLUSTER
]


@pytest.mark.parametrize(("attack", "kind"), QUICK, ids=[f"{attack.name}-{kind}" for attack, kind in QUICK])
def test_attack_stays_within_budget(attack: Attack, kind: str) -> None:
    row = measure(attack, kind, SEED, few=True)
    assert row.overruns == []
