"""Tables of the schema registry in the metadata image: schemas, versions of subjects, configs and modes."""

from __future__ import annotations

from typing import Final

DEFAULT_CONTEXT: Final = "."
GLOBAL_CONTEXT: Final = ".__GLOBAL"
"""The context whose config and mode apply to all contexts that have none of their own."""


def split_subject(subject: str) -> tuple[str, str]:
    """Split a qualified name into the context and the name in it: (".", "orders") or (".lab", "orders")."""
    if not subject.startswith(":."):
        return DEFAULT_CONTEXT, subject.removeprefix(":*:")
    context, _, name = subject[1:].partition(":")
    return context, name


def join_subject(context: str, name: str) -> str:
    """Return the canonical name of a subject, or of a context if `name` is empty."""
    return name if context == DEFAULT_CONTEXT else f":{context}:{name}"
