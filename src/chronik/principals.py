"""Principals: authenticated identities in the notation of Kafka's ACLs and quotas, such as `User:alice`."""

from __future__ import annotations

from typing import Final, NamedTuple

USER: Final = "User"


class Principal(NamedTuple):
    """An identity, such as User:alice, to which ACLs and quotas apply."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Parse a principal in the form `TYPE:NAME`.

        Raises:
            ValueError: The text has another form; the message describes the expected form.
        """
        kind, colon, name = text.partition(":")
        if not kind or not colon or not name:
            raise ValueError("TYPE:NAME, such as User:alice")
        return cls(kind, name)


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""The principal of clients on listeners without authentication, as in Kafka."""
