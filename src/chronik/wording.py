"""Counted nouns and spelling suggestions for messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

SIMILARITY_MIN: Final = 0.6
"""How alike two names must be to suggest one for the other, as difflib measures it."""


NAME_CHARACTERS_MAX: Final = 100
"""Longer names get no suggestion: difflib takes time quadratic in their length."""


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return the count with its noun in the singular or plural: `1 broker`, `2 brokers`, `1,000 entries`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def install_hint(extra: str) -> str:
    """Return how to install Chronik with an extra. Chronik is not on a package index."""
    return f"pip install '.[{extra}]' in a clone of Chronik"


def closest_name(name: str, known: Iterable[str], similarity_min: float = SIMILARITY_MIN) -> str | None:
    """Return the known name that is spelled most like this one, or None if none is similar enough."""
    if len(name) > NAME_CHARACTERS_MAX:
        return None
    import difflib  # loaded for mistakes only: nodes start without it

    spelled = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=similarity_min)
    return spelled[found[0]] if found else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?`, to be appended to an error message, or nothing if no known name is similar."""
    found = closest_name(name, known)
    return "" if found is None else f"; did you mean {found!r}?"
