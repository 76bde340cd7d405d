"""Pluralized nouns and spelling suggestions for messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

SIMILARITY_MIN: Final = 0.6
"""Minimum difflib similarity ratio at which a known name is suggested."""


NAME_CHARACTERS_MAX: Final = 100
"""Maximum length of a name for which similar names are searched, because difflib takes quadratic time."""


def pluralize(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun in singular or plural: `1 broker`, `2 brokers`, `1,000 entries`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def format_install_hint(extra: str) -> str:
    """Return the command that installs Chronik with an optional dependency group (Chronik is not on PyPI)."""
    return f"pip install '.[{extra}]' in a clone of Chronik"


def find_closest_name(name: str, known: Iterable[str], similarity_min: float = SIMILARITY_MIN) -> str | None:
    """Return the known name with the most similar spelling, or None if none is similar enough."""
    if len(name) > NAME_CHARACTERS_MAX:
        return None
    import difflib  # imported on use: nodes start without it

    spelled = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=similarity_min)
    return spelled[found[0]] if found else None


def format_spelling_suggestion(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for an error message, or an empty string if no known name is similar."""
    found = find_closest_name(name, known)
    return "" if found is None else f"; did you mean {found!r}?"
