"""Filters and ranges of messages from the query parameters of an operation."""

from __future__ import annotations

from typing import NamedTuple

from chronik.console.messages.condition import ConditionError
from chronik.console.messages.message_filter import MessageFilter
from chronik.console.rest.context import OperationContext, build_bad_request_error
from chronik.console.rest.models.messages import ExportMessages, MessageQuery, ReadMessages
from chronik.console.rest.operations.positions import (
    Offsets,
    fetch_available_partitions,
    fetch_offset_bounds,
    resolve_position,
)


class MessageRanges(NamedTuple):
    """The offsets that a request reads of each partition."""

    starts: Offsets
    """The log start offsets."""
    ends: Offsets
    """The end offsets."""
    begun: Offsets
    """The offsets at which the request starts."""
    bounds: Offsets
    """The offsets at which it ends, before the start if it reads backwards."""


def create_filter(params: MessageQuery) -> MessageFilter:
    """Return the filter of a request. Raise RestError if its condition is malformed."""
    try:
        return MessageFilter(text=params.text, key=params.key, header=params.header, where=params.where)
    except ConditionError as error:
        raise build_bad_request_error(str(error)) from None


def resolve_ranges(context: OperationContext, params: ReadMessages | ExportMessages) -> MessageRanges:
    """Return the ranges of a request.

    Raises:
        RestError: A position is malformed.
        KafkaError: The topic or partition does not exist, or no partition is available.
    """
    isolation = int(params.isolation == "committed")
    is_forward = params.order == "oldest"
    topic, partitions = fetch_available_partitions(context, context.path_parameters["topic"], params.partition)
    starts, ends = fetch_offset_bounds(context, topic, partitions, isolation)
    where = params.from_ or ("start" if is_forward else "end")
    begun = resolve_position(context, topic, where, starts, ends)
    bounds = dict(ends if is_forward else starts)
    if params.until is not None:
        until = resolve_position(context, topic, params.until, starts, ends)
        limit = max if is_forward else min
        bounds = {each: limit(until[each], begun[each]) for each in begun}
    return MessageRanges(starts, ends, begun, bounds)
