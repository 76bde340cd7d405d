"""The status pages of the HTTP port: health, readiness, problems, metrics, status and committed offsets.

Access is open on loopback listeners; other listeners require the token or a client certificate. `/healthz` is public.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Iterator
from http import HTTPStatus
from itertools import islice
from typing import Any, Final

import msgspec

from chronik.console.http import HttpError, HttpResponse
from chronik.console.prometheus import CONTENT_TYPE, iter_exposition_chunks
from chronik.console.status_source import StatusSource
from chronik.health.reports import HealthReport

logger = logging.getLogger("chronik.console")

GROUPS_PREFIX: Final = "/status/groups/"
HEALTH_PATH: Final = "/health"
JSON_CONTENT_TYPE: Final = "application/json"

ROWS_PER_CHUNK: Final = 100
"""Rows per chunk of a long page. With commit metadata of maximum length, a chunk has 0.5 MB and takes 1 ms to
encode."""

PUBLIC_PATHS: Final = frozenset({"/healthz"})
BEARER_PREFIX: Final = "bearer "


class StatusPages:
    """The HTTP status pages of a node, such as `/healthz`, `/metrics` and `/status`."""

    def __init__(self, source: StatusSource) -> None:
        self._source = source
        self._health: HealthReport | None = None
        self._by_path: dict[str, Callable[[], HttpResponse]] = {
            "/healthz": self._render_health,
            "/readyz": self._render_readiness,
            HEALTH_PATH: self._render_problems,
            "/metrics": self._render_metrics,
            "/status": self._render_status,
        }

    def has_page(self, path: str) -> bool:
        """Return whether a path is one of the HTTP status pages."""
        return path in self._by_path or path.startswith(GROUPS_PREFIX)

    def must_prepare(self, path: str) -> bool:
        """Return whether `prepare` must be awaited before the page is rendered."""
        return path == HEALTH_PATH

    async def prepare(self, path: str) -> None:
        """Collect what a page shows, if that takes more than one event-loop iteration."""
        if self.must_prepare(path):
            self._health = await self._source.health()

    def render(self, path: str) -> HttpResponse:
        """Render a status page. An exception is logged and becomes a 500 response; this method never raises."""
        try:
            page = self._by_path.get(path)
            if page is not None:
                return page()
            if path.startswith(GROUPS_PREFIX):
                return self._render_group(path.removeprefix(GROUPS_PREFIX))
        except Exception:
            logger.exception("status page failed: path=%s", path)
            return build_error_page(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; see the node's log for details")
        known = ", ".join([*self._by_path, f"{GROUPS_PREFIX}GROUP"])
        return build_error_page(HTTPStatus.NOT_FOUND, f"page not found; available pages: {known}")

    def _render_health(self) -> HttpResponse:
        """Return the health page with status 200. Any response shows that the event loop is running."""
        return _build_text_page(HTTPStatus.OK, "ok")

    def _render_readiness(self) -> HttpResponse:
        reason = self._source.unready_reason()
        if reason is None:
            return _build_text_page(HTTPStatus.OK, "ready")
        return _build_text_page(HTTPStatus.SERVICE_UNAVAILABLE, f"not ready: {reason}")

    def _render_problems(self) -> HttpResponse:
        """Return the problems of the cluster. The status code depends on the node's readiness only, as at /readyz."""
        reason = self._source.unready_reason()
        health = {"status": "unknown"} if self._health is None else self._health.to_json()
        body = {**health, "ready": reason is None, "unready_reason": reason}
        return _build_json_page(HTTPStatus.OK if reason is None else HTTPStatus.SERVICE_UNAVAILABLE, body)

    def _render_metrics(self) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, CONTENT_TYPE, chunks=iter_exposition_chunks(self._source.metrics()))

    def _render_status(self) -> HttpResponse:
        return _build_json_page(HTTPStatus.OK, self._source.status())

    def _render_group(self, group_id: str) -> HttpResponse:
        group = self._source.group(group_id)
        if group is None:
            return build_error_page(HTTPStatus.NOT_FOUND, f"group {group_id!r} does not exist on this node")
        return HttpResponse(HTTPStatus.OK, JSON_CONTENT_TYPE, chunks=_encode_group_chunks(group))


class NoStatusPages:
    """The status pages of a listener that has none."""

    def has_page(self, path: str) -> bool:
        """Return False."""
        return False

    def must_prepare(self, path: str) -> bool:
        """Return False."""
        return False

    async def prepare(self, path: str) -> None:
        """Do nothing."""

    def render(self, path: str) -> HttpResponse:
        """Return a 404 response."""
        return build_error_page(HTTPStatus.NOT_FOUND, "page not found")


def build_error_page(status: HTTPStatus, message: str) -> HttpResponse:
    """Return an error response with a JSON body."""
    return _build_json_page(status, {"error": message})


def join_chunks(response: HttpResponse) -> HttpResponse:
    """Join the chunks of an HTTP response into a single body, for HTTP/1.0 clients."""
    if response.chunks is None:
        return response
    return HttpResponse(response.status, response.content_type, b"".join(response.chunks))


def _encode_group_chunks(group: dict[str, Any]) -> Iterator[bytes]:
    """Yield a group as a JSON object in chunks. The key "offsets" is last, because only its value can be long."""
    rows = iter(group["offsets"])
    head = msgspec.json.encode({name: value for name, value in group.items() if name != "offsets"})
    separator = head[:-1] + b',"offsets":['
    while chunk_rows := list(islice(rows, ROWS_PER_CHUNK)):
        yield separator + msgspec.json.encode(chunk_rows)[1:-1]
        separator = b","
    yield (b"]}\n" if separator == b"," else separator + b"]}\n")


def _build_json_page(status: HTTPStatus, value: dict[str, Any]) -> HttpResponse:
    return HttpResponse(status, JSON_CONTENT_TYPE, msgspec.json.encode(value) + b"\n")


def _build_text_page(status: HTTPStatus, line: str) -> HttpResponse:
    return HttpResponse(status, "text/plain; charset=utf-8", f"{line}\n".encode())


class PageAuthorizer:
    """The access rules of the status pages."""

    def __init__(self, token: str | None, *, allows_anonymous: bool) -> None:
        self._token = token.encode() if token else None
        self.allows_anonymous: Final = allows_anonymous

    def check_access(self, path: str, authorization: str, *, has_certificate: bool = False) -> None:
        """Raise HttpError unless the client is authorized to see the page.

        Pages that do not exist raise the same error, so that a client cannot find out which pages exist. The client
        certificate was verified during the TLS handshake.
        """
        if self.allows_anonymous or has_certificate or path in PUBLIC_PATHS:
            return
        if self._token is None:
            reason = "status pages are available on loopback addresses, or with a token or a client certificate: "
            reason += "set http_token, or http_keystore and http_truststore"
            raise HttpError(HTTPStatus.UNAUTHORIZED, reason)
        given_token = (
            authorization[len(BEARER_PREFIX) :].strip() if authorization.lower().startswith(BEARER_PREFIX) else ""
        )
        if not hmac.compare_digest(given_token.encode("utf-8", "replace"), self._token):
            raise HttpError(HTTPStatus.UNAUTHORIZED, "send 'Authorization: Bearer' with this node's http_token")
