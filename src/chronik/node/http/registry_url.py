"""The URL of a node's schema registry."""

from __future__ import annotations

from typing import Final

from chronik.listeners import Address, is_loopback_address, is_wildcard_host

REGISTRY_PATH: Final = "/registry"
"""The path of the schema registry on the HTTP port."""


def build_registry_url(url: str, advertised_host: str) -> str:
    """Return the URL of a node's schema registry for its Kafka clients, or an empty string if they cannot reach it.

    Clients on other machines must not receive a loopback address: it is another program there, to which they would send
    their passwords.
    """
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    address = Address.parse(authority)
    if is_wildcard_host(address.host):
        address = address._replace(host=advertised_host)
    elif is_loopback_address(address.host) and not is_loopback_address(advertised_host):
        return ""
    return f"{scheme}://{address}{slash}{path}"
