"""Asks a node's HTTP port: the other side of `chronik.console.listener`, for commands and tests. With a context, `tls`,
it asks over TLS."""

from __future__ import annotations

import http.client
import json
import ssl
from base64 import b64encode
from typing import Any, NamedTuple
from urllib.parse import quote

from chronik.config import Address
from chronik.console.pages import GROUPS_PREFIX
from chronik.errors import ChronikError

Tls = ssl.SSLContext | None


class Way(NamedTuple):
    """How one gets in."""

    token: str | None = None
    tls: Tls = None


class NodeSilent(ChronikError):
    """Nobody answers at the address, or not as a node of Chronik does."""


class NotAuthorized(NodeSilent):
    """The node answers, but rejects the credentials, or asks for some."""


Login = tuple[str, str]
"""A user's name and password."""


def ask_status(
    address: Address, timeout_s: float, token: str | None = None, tls: Tls = None, login: Login | None = None
) -> dict[str, Any]:
    """Raises NodeSilent."""
    status, body = ask(address, "/status", timeout_s, token, tls, login)
    return _json_object(address, body) if status == http.client.OK else _unexpected(address, status)


def ask_group(
    address: Address, group_id: str, timeout_s: float, token: str | None = None, tls: Tls = None
) -> dict[str, Any] | None:
    """Returns None when the node knows nothing of the group. Raises NodeSilent."""
    status, body = ask(address, GROUPS_PREFIX + quote(group_id, safe=""), timeout_s, token, tls)
    if status == http.client.NOT_FOUND:
        return None
    return _json_object(address, body) if status == http.client.OK else _unexpected(address, status)


def ask_ready(
    address: Address, timeout_s: float, token: str | None = None, tls: Tls = None, login: Login | None = None
) -> str | None:
    """Return None when the node is ready, else why not.

    Raises:
        NotAuthorized: the node does not say whether it is ready without other credentials.
        NodeSilent: the node does not answer.
    """
    status, body = ask(address, "/readyz", timeout_s, token, tls, login)
    if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
        raise NotAuthorized(f"{address} answered with HTTP status {status}")
    return None if status == http.client.OK else body.decode(errors="replace").strip()


def ask(
    address: Address,
    path: str,
    timeout_s: float,
    token: str | None = None,
    tls: Tls = None,
    login: Login | None = None,
) -> tuple[int, bytes]:
    """Return the status and the body; without a token, authenticate by name and password, if they are given. Raises
    NodeSilent."""
    bearer = {} if token is None else {"Authorization": f"Bearer {token}"}
    if token is None and login is not None:
        bearer = {"Authorization": f"Basic {b64encode(':'.join(login).encode()).decode()}"}
    connection = _connection(address, timeout_s, tls)
    try:
        connection.request("GET", path, headers={"Connection": "close"} | bearer)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except TimeoutError as error:
        raise NodeSilent(f"{address} did not answer within {timeout_s:g} s") from error
    except (OSError, http.client.HTTPException) as error:
        raise NodeSilent(f"no node answers at {address}: {error}") from error
    finally:
        connection.close()


def _connection(address: Address, timeout_s: float, tls: Tls) -> http.client.HTTPConnection:
    if tls is None:
        return http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)
    return http.client.HTTPSConnection(address.host, address.port, timeout=timeout_s, context=tls)


def _json_object(address: Address, body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise NodeSilent(f"{address} does not answer as a node does")
    return value


def _unexpected(address: Address, status: int) -> dict[str, Any]:
    raise NodeSilent(f"{address} answered with HTTP status {status}")
