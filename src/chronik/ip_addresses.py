"""Client IP addresses in the form in which ACLs compare them and connection limits count them."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

CACHED_ADDRESSES_MAX: Final = 4096
"""Maximum number of addresses whose canonical form is cached."""
IPV6_PREFIX_BITS: Final = 64
"""Prefix length of the IPv6 networks that limits treat as one client. A site has at least a /64 network."""


def normalize_host(host: str) -> str:
    """Return a client's IP address in canonical form: IPv4-mapped addresses as IPv4, IPv6 compressed, no scope id.

    A listener on `::` sees IPv4 clients as `::ffff:a.b.c.d`, but Kafka's brokers and ACLs use `a.b.c.d`. Text that is
    not an IP address is returned unchanged.
    """
    return host if ":" not in host else _normalize_address(host)


def client_network(host: str) -> str:
    """Return the network by which per-address limits count a client: its IPv4 address or its IPv6 /64 network."""
    return host if ":" not in host else _to_network(host)


@lru_cache(CACHED_ADDRESSES_MAX)
def _normalize_address(host: str) -> str:
    from ipaddress import IPv6Address  # imported on first use: a node without IPv6 clients starts faster

    try:
        address = IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    return str(address.ipv4_mapped or address)


@lru_cache(CACHED_ADDRESSES_MAX)
def _to_network(host: str) -> str:
    from ipaddress import IPv6Network

    address = _normalize_address(host)
    if ":" not in address:
        return address
    try:
        return str(IPv6Network((address, IPV6_PREFIX_BITS), strict=False))
    except ValueError:
        return host
