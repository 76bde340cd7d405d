"""Shapes that all operations share."""

from __future__ import annotations

from typing import Annotated, Final, Generic, TypeVar

import msgspec

T = TypeVar("T")

PAGE_MAX: Final = 500
NAME_CHARACTERS_MAX: Final = 249
"""The longest name of a topic."""
WORDS_CHARACTERS_MAX: Final = 500
"""In a query: of the longest characters, percent-encoded, so many are within what a head may have."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARACTERS_MAX)]
Words = Annotated[str, msgspec.Meta(max_length=WORDS_CHARACTERS_MAX)]
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Index = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Limit = Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)]


class Body(msgspec.Struct, forbid_unknown_fields=True):
    """What is sent. A key that is not known is refused: it may be one that is written wrongly."""


class Error(msgspec.Struct):
    error: str
    """One sentence."""
    code: str | None = None
    """Kafka's name for it, if it has one."""


class Page(msgspec.Struct, Generic[T]):
    items: list[T]
    next: str | None
    """What to give as `after` for the next page; null at the end."""
    total: int


class Paging(msgspec.Struct):
    limit: Limit = 100
    after: Words | None = None
    """The `next` of the page before."""


class Searching(Paging):
    search: Words = ""
    """Only those whose name contains this, whatever the case."""


class NoQuestion(msgspec.Struct):
    """Nothing can be said beside the path."""


class NoBody(Body):
    """`{}`."""


class DryRun(Body):
    dry_run: bool = False
    """Only the plan is answered, and nothing is changed."""


class Plan(msgspec.Struct):
    plan: list[str]
    """What is done, or would be, a sentence each."""
    refused: str | None = None
    """Why it cannot be done."""
    done: bool = False


class Done(msgspec.Struct):
    done: bool = True
