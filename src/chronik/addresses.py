"""IP addresses of clients in the form in which rules compare them and limits count them."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

CACHED_MAX: Final = 4096
NETWORK_BITS: Final = 64
"""An IPv6 site has at least a /64, and its hosts may use any address in it: limits count the whole network."""


def normalized(host: str) -> str:
    """Return an IP address as rules compare it: IPv4-mapped addresses as IPv4, IPv6 in short form without a scope id.

    A listener on `::` sees IPv4 clients as `::ffff:a.b.c.d`; Kafka's brokers, and so its ACLs, see `a.b.c.d`. Text that
    is not an address is returned unchanged.
    """
    return host if ":" not in host else _normalized(host)


def network_of(host: str) -> str:
    """Return the unit by which limits per address count a client: its IPv4 address or its IPv6 /64 network."""
    return host if ":" not in host else _network_of(host)


@lru_cache(CACHED_MAX)
def _normalized(host: str) -> str:
    from ipaddress import IPv6Address  # a node without IPv6 clients starts without

    try:
        address = IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    return str(address.ipv4_mapped or address)


@lru_cache(CACHED_MAX)
def _network_of(host: str) -> str:
    from ipaddress import IPv6Network

    address = _normalized(host)
    if ":" not in address:
        return address
    try:
        return str(IPv6Network((address, NETWORK_BITS), strict=False))
    except ValueError:
        return host
