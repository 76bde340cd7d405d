"""Models that several operations share."""

from __future__ import annotations

from typing import Annotated, Final, Generic, TypeVar

import msgspec

T = TypeVar("T")

PAGE_MAX: Final = 500
NAME_CHARACTERS_MAX: Final = 249
"""The maximum length of a topic name."""
WORDS_CHARACTERS_MAX: Final = 500
"""Maximum length of a string in a query. A string of this length fits into the request line even if all characters are
percent-encoded."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARACTERS_MAX)]
Words = Annotated[str, msgspec.Meta(max_length=WORDS_CHARACTERS_MAX)]
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Index = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Limit = Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)]


class Body(msgspec.Struct, forbid_unknown_fields=True):
    """A request body. Unknown keys are rejected, because they are probably misspelled."""


class Error(msgspec.Struct):
    """An error response."""

    error: str
    """The error message, one sentence."""
    code: str | None = None
    """The name of the Kafka error code, if there is one."""


class Page(msgspec.Struct, Generic[T]):
    """One page of a list."""

    items: list[T]
    next: str | None
    """The `after` parameter with which to request the next page; null on the last page."""
    total: int


class Paging(msgspec.Struct):
    """The query parameters of a paginated list."""

    limit: Limit = 100
    after: Words | None = None
    """The position at which the page starts: the `next` value of the previous page."""


class Searching(Paging):
    """The query parameters of a paginated list with a name filter."""

    search: Words = ""
    """Return only items whose name contains this text, ignoring case."""


class NoQuestion(msgspec.Struct):
    """An empty set of query parameters."""


class NoBody(Body):
    """An empty request body, `{}`."""


class DryRun(Body):
    """The body of a request that supports a dry run."""

    dry_run: bool = False
    """Whether only to return the planned steps, without executing them."""


class Plan(msgspec.Struct):
    """The steps of a change to the cluster, and whether the change is complete."""

    plan: list[str]
    """The steps that were or would be executed, one sentence each."""
    refused: str | None = None
    """The reason why the change was rejected."""
    done: bool = False


class Done(msgspec.Struct):
    """The response of an operation that returns no data."""

    done: bool = True
