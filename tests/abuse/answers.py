"""Small requests that ask for large answers, or make the node keep much."""

from __future__ import annotations

from typing import Final

from tests.abuse.attack import Attack

ATTACKS: Final[tuple[Attack, ...]] = ()
