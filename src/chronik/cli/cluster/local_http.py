"""HTTP requests to local nodes, with the token and the certificate from their config files."""

from __future__ import annotations

import ssl
from typing import Any

from chronik.cli.cluster.local_nodes import LocalNode
from chronik.client.access.settings import ClientSecurity
from chronik.client.access.tls import create_ssl_context
from chronik.config import Address
from chronik.console.certificate_pinning import create_pinned_context
from chronik.console.http import is_loopback_host
from chronik.console.http_client import LoginCredentials, fetch_status, fetch_unready_reason


def http_endpoint(
    node: LocalNode, security: ClientSecurity
) -> tuple[Address, str | None, ssl.SSLContext | None] | None:
    """Return the address, token and TLS context of the node's HTTP port, or None if it has no HTTP port."""
    config = node.config
    return None if config.http is None else (config.http, config.http_token, _tls(node, security))


def fetch_local_status(node: LocalNode, timeout_s: float, security: ClientSecurity) -> dict[str, Any] | None:
    """Return the node's `/status`, or None if it has no HTTP port. Raise NodeRequestError if it does not respond."""
    config, tls = node.config, _tls(node, security)
    if config.http is None:
        return None
    return fetch_status(config.http, timeout_s, config.http_token, tls, _login(config.http, tls, security))


def fetch_local_unready_reason(node: LocalNode, timeout_s: float, security: ClientSecurity) -> str | None:
    """Return why the node is not ready, or None if it is ready or has no HTTP port.

    Raises:
        NodeRequestError: The node does not answer.
        NodeAuthorizationError: The node requires a login that neither its config file nor the client settings have.
    """
    config, tls = node.config, _tls(node, security)
    if config.http is None:
        return None
    return fetch_unready_reason(config.http, timeout_s, config.http_token, tls, _login(config.http, tls, security))


def _login(address: Address, tls: ssl.SSLContext | None, security: ClientSecurity) -> LoginCredentials | None:
    """Return the client's name and password, unless they would be sent in plain text over a network."""
    if not security.username or (tls is None and not is_loopback_host(str(address))):
        return None
    return security.username, security.password


def _tls(node: LocalNode, security: ClientSecurity) -> ssl.SSLContext | None:
    """Return the TLS context of the client settings, or one that trusts the certificate in the node's config file."""
    config = node.config
    if config.http_keystore is None:
        return None
    if security.ca_file or security.ca:
        return create_ssl_context(security)
    shows_itself = config.http_truststore is not None and config.http_token is None
    return create_pinned_context(node.directory / config.http_keystore, with_client_certificate=shows_itself)
