"""Records that are small on the wire and large once somebody looks into them."""

from __future__ import annotations

from typing import Final

from tests.abuse.attack import Attack

ATTACKS: Final[tuple[Attack, ...]] = ()
