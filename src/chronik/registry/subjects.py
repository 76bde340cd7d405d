"""Names of subjects and contexts: `subject` in the default context, `:.context:subject` in another one."""

from __future__ import annotations

import unicodedata
from typing import Final

from chronik.limits import SUBJECT_NAME_CHARACTERS_MAX
from chronik.metadata.schemas import DEFAULT_CONTEXT, GLOBAL_CONTEXT, join_subject, split_subject
from chronik.registry.errors import InvalidSubjectError

ALL_CONTEXTS_PREFIX: Final = ":*:"
"""The prefix that matches the subjects of all contexts in listings."""

CONTEXT_PREFIX: Final = ":."
"""The prefix of the names of subjects in contexts other than the default one, and of all contexts in listings."""

DEFAULT_CONTEXT_PREFIX: Final = ":.:"
"""A prefix that stands for the default context. Canonical names do not have it."""

_RESERVED_NAMES: Final = frozenset({"__GLOBAL", "__EMPTY"})


def normalize_subject(subject: str) -> str:
    """Return the canonical name of a subject or context: `:.:orders` is `orders`, and `:.lab` is `:.lab:`."""
    return join_subject(*split_subject(subject))


def is_context(subject: str) -> bool:
    """Return whether the name denotes a whole context, such as `:.lab:`."""
    return not split_subject(subject)[1]


def is_default_context(subject: str | None) -> bool:
    """Return whether the name denotes the default context; None does."""
    return subject is None or split_subject(subject) == (DEFAULT_CONTEXT, "")


def check_subject(subject: str, *, allows_context: bool = False) -> str:
    """Return the canonical name of a subject.

    With `allows_context`, the name may denote a context, because contexts have configs and modes as well.

    Raises:
        InvalidSubjectError: The name is empty, reserved, too long, or has control characters.
    """
    context, name = split_subject(subject)
    if (
        len(subject) > SUBJECT_NAME_CHARACTERS_MAX
        or name in _RESERVED_NAMES
        or any(unicodedata.category(character) == "Cc" for character in subject)
        or (not allows_context and (not name or context == GLOBAL_CONTEXT))
    ):
        raise InvalidSubjectError(subject)
    return join_subject(context, name)
