"""The pages: what is answered for which path."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from http import HTTPStatus
from itertools import islice
from typing import Any, Final

import msgspec

from chronik.console.http import HttpResponse
from chronik.console.prometheus import CONTENT_TYPE, exposition
from chronik.console.source import StatusSource

logger = logging.getLogger("chronik.console")

GROUPS_PREFIX: Final = "/status/groups/"
JSON: Final = "application/json"

ROWS_PER_PIECE: Final = 100
"""Rows of a long page: with the longest metadata of commits they are half a megabyte, encoded in a millisecond."""


class Pages:
    def __init__(self, source: StatusSource) -> None:
        self._source = source
        self._by_path: dict[str, Callable[[], HttpResponse]] = {
            "/healthz": self._health,
            "/readyz": self._readiness,
            "/metrics": self._metrics,
            "/status": self._status,
        }

    def knows(self, path: str) -> bool:
        return path in self._by_path or path.startswith(GROUPS_PREFIX)

    def answer(self, path: str) -> HttpResponse:
        """Never raises: a page that breaks is a line in the log, not the end of a node."""
        try:
            page = self._by_path.get(path)
            if page is not None:
                return page()
            if path.startswith(GROUPS_PREFIX):
                return self._group(path.removeprefix(GROUPS_PREFIX))
        except Exception:
            logger.exception("%s cannot be shown", path)
            return error_page(HTTPStatus.INTERNAL_SERVER_ERROR, "this page is broken; the node's log says why")
        known = ", ".join([*self._by_path, f"{GROUPS_PREFIX}GROUP"])
        return error_page(HTTPStatus.NOT_FOUND, f"no such page; there are {known}")

    def _health(self) -> HttpResponse:
        """The answer itself is the proof: the event loop runs."""
        return _text_page(HTTPStatus.OK, "ok")

    def _readiness(self) -> HttpResponse:
        why_not = self._source.ready()
        if why_not is None:
            return _text_page(HTTPStatus.OK, "ready")
        return _text_page(HTTPStatus.SERVICE_UNAVAILABLE, f"not ready: {why_not}")

    def _metrics(self) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, CONTENT_TYPE, exposition(self._source.metrics()).encode())

    def _status(self) -> HttpResponse:
        return _json_page(HTTPStatus.OK, self._source.status())

    def _group(self, group_id: str) -> HttpResponse:
        group = self._source.group(group_id)
        if group is None:
            return error_page(HTTPStatus.NOT_FOUND, f"this node knows no group {group_id!r}")
        return HttpResponse(HTTPStatus.OK, JSON, pieces=_group_pieces(group))


def error_page(status: HTTPStatus, message: str) -> HttpResponse:
    return _json_page(status, {"error": message})


def in_one_piece(response: HttpResponse) -> HttpResponse:
    """Joins the pieces, for those who cannot take chunks."""
    if response.pieces is None:
        return response
    return HttpResponse(response.status, response.content_type, b"".join(response.pieces))


def _group_pieces(group: dict[str, Any]) -> Iterator[bytes]:
    """Yields a JSON object whose "offsets", the only part that can be long, come last and in pieces."""
    rows = iter(group["offsets"])
    head = msgspec.json.encode({name: value for name, value in group.items() if name != "offsets"})
    separator = head[:-1] + b',"offsets":['
    while piece := list(islice(rows, ROWS_PER_PIECE)):
        yield separator + msgspec.json.encode(piece)[1:-1]
        separator = b","
    yield (b"]}\n" if separator == b"," else separator + b"]}\n")


def _json_page(status: HTTPStatus, value: dict[str, Any]) -> HttpResponse:
    return HttpResponse(status, JSON, msgspec.json.encode(value) + b"\n")


def _text_page(status: HTTPStatus, line: str) -> HttpResponse:
    return HttpResponse(status, "text/plain; charset=utf-8", f"{line}\n".encode())
