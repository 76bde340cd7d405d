"""All attacks by name. Add new attack modules here."""

from __future__ import annotations

from typing import Final

from tests.abuse import answers, bombs, frames, groups, http, names, peers, records
from tests.abuse.attack import Attack
from tests.abuse.doors import handshakes, logins, passwords
from tests.abuse.floods import http as http_floods
from tests.abuse.floods import kafka as kafka_floods

ATTACKS: Final[dict[str, Attack]] = {
    attack.name: attack
    for module in (
        *(frames, http, peers, names, groups, records, bombs, answers),
        *(handshakes, logins, passwords),
        *(kafka_floods, http_floods),
    )
    for attack in module.ATTACKS
}
