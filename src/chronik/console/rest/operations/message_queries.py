"""Filters and scans of messages from the query parameters of an operation."""

from __future__ import annotations

from chronik.console.messages.condition import ConditionError
from chronik.console.messages.message_filter import MessageFilter
from chronik.console.rest.context import build_bad_request_error
from chronik.console.rest.models.messages import MessageQuery


def create_filter(params: MessageQuery) -> MessageFilter:
    """Return the filter of a request. Raise RestError if its condition is malformed."""
    try:
        return MessageFilter(text=params.text, key=params.key, header=params.header, where=params.where)
    except ConditionError as error:
        raise build_bad_request_error(str(error)) from None
