"""A blocking client for a node's HTTP port, used by CLI commands and tests. Pass an SSL context as `tls` for HTTPS.

For a node on the same machine, the SSL context may pin the node's own certificate (`create_pinned_context`).
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
from base64 import b64encode
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from chronik.config import Address
from chronik.console.status_pages import GROUPS_PREFIX
from chronik.errors import ChronikError, ConfigError

OptionalSslContext = ssl.SSLContext | None

_CERTIFICATE: Final = re.compile(f"{ssl.PEM_HEADER}.*?{ssl.PEM_FOOTER}", re.DOTALL)


class HttpAccess(NamedTuple):
    """The credentials for a node's HTTP port: a token, and the TLS context for HTTPS."""

    token: str | None = None
    tls: OptionalSslContext = None


class NodeRequestError(ChronikError):
    """A failed request to a node's HTTP port: no response, or a response that no Chronik node sends."""


class NodeAuthorizationError(NodeRequestError):
    """A request that the node rejected because of missing or invalid credentials."""


LoginCredentials = tuple[str, str]
"""A user name and a password for Basic authentication at a node's HTTP port."""


def fetch_status(
    address: Address,
    timeout_s: float,
    token: str | None = None,
    tls: OptionalSslContext = None,
    login: LoginCredentials | None = None,
) -> dict[str, Any]:
    """Return a node's status page.

    Raises:
        NodeRequestError: The node does not respond, or not with a status page.
    """
    status, body = http_get(address, "/status", timeout_s, token, tls, login)
    return _parse_json_object(address, body) if status == http.client.OK else _raise_unexpected(address, status)


def fetch_group(
    address: Address, group_id: str, timeout_s: float, token: str | None = None, tls: OptionalSslContext = None
) -> dict[str, Any] | None:
    """Return a consumer group as the node reports it, or None if the node has no state for the group.

    Raises:
        NodeRequestError: The node does not respond, or not with a group.
    """
    status, body = http_get(address, GROUPS_PREFIX + quote(group_id, safe=""), timeout_s, token, tls)
    if status == http.client.NOT_FOUND:
        return None
    return _parse_json_object(address, body) if status == http.client.OK else _raise_unexpected(address, status)


def fetch_unready_reason(
    address: Address,
    timeout_s: float,
    token: str | None = None,
    tls: OptionalSslContext = None,
    login: LoginCredentials | None = None,
) -> str | None:
    """Return None if the node is ready, otherwise the reason why it is not.

    Raises:
        NodeAuthorizationError: The node does not report its readiness without valid credentials.
        NodeRequestError: The node does not respond.
    """
    status, body = http_get(address, "/readyz", timeout_s, token, tls, login)
    if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
        raise NodeAuthorizationError(f"{address}: HTTP status {status}; the credentials are missing or not accepted")
    return None if status == http.client.OK else body.decode(errors="replace").strip()


def http_get(
    address: Address,
    path: str,
    timeout_s: float,
    token: str | None = None,
    tls: OptionalSslContext = None,
    login: LoginCredentials | None = None,
) -> tuple[int, bytes]:
    """Send a GET request and return the status and the body. If both are given, `token` takes precedence over `login`.

    Raises:
        NodeRequestError: The node cannot be reached or does not respond in time.
    """
    headers_auth = {} if token is None else {"Authorization": f"Bearer {token}"}
    if token is None and login is not None:
        headers_auth = {"Authorization": f"Basic {b64encode(':'.join(login).encode()).decode()}"}
    connection = _create_connection(address, timeout_s, tls)
    try:
        connection.request("GET", path, headers={"Connection": "close"} | headers_auth)
        response = connection.getresponse()
        return response.status, response.read()
    except TimeoutError as error:
        raise NodeRequestError(f"{address}: no response within {timeout_s:g} s") from error
    except (OSError, http.client.HTTPException) as error:
        raise NodeRequestError(f"{address}: cannot reach a node: {error}") from error
    finally:
        connection.close()


def _create_connection(address: Address, timeout_s: float, tls: OptionalSslContext) -> http.client.HTTPConnection:
    if tls is None:
        return http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)
    return http.client.HTTPSConnection(address.host, address.port, timeout=timeout_s, context=tls)


def _parse_json_object(address: Address, body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise NodeRequestError(f"{address}: the response is not that of a Chronik node")
    return value


def _raise_unexpected(address: Address, status: int) -> dict[str, Any]:
    raise NodeRequestError(f"{address}: unexpected HTTP status {status}")


def create_pinned_context(keystore: Path, *, with_client_certificate: bool) -> ssl.SSLContext:
    """Return a client TLS context that accepts only the certificates in this file, for any host name.

    With `with_client_certificate`, the context also presents them, which authenticates where the same CA signs nodes
    and clients.

    Raises:
        ConfigError: The file cannot be read or holds no valid certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # trust the certificate itself, without its CA
    try:
        text = keystore.read_text(encoding="ascii", errors="replace")
        context.load_verify_locations(cadata="\n".join(_CERTIFICATE.findall(text)))
        if with_client_certificate:
            context.load_cert_chain(keystore, password="")  # a password prevents a prompt
    except (OSError, ValueError) as error:  # ssl.SSLError is a subclass of OSError
        raise ConfigError(f"http_keystore: {keystore}: {getattr(error, 'strerror', None) or error}") from None
    return context
