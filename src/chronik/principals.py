"""Who is at the other end of a connection, as ACLs and quotas name them: `User:alice`."""

from __future__ import annotations

from typing import Final, NamedTuple

USER: Final = "User"


class Principal(NamedTuple):
    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Raises ValueError with what is expected."""
        kind, colon, name = text.partition(":")
        if not kind or not colon or not name:
            raise ValueError("TYPE:NAME, such as User:alice")
        return cls(kind, name)


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""Whoever has not said who they are, on a listener that does not ask: Kafka's name for them."""
