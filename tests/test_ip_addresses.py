from __future__ import annotations

import pytest

from chronik.ip_addresses import client_network, normalize_host


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::FFFF:0a00:0001", "10.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8::0001", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("", ""),
        ("node", "node"),
        ("not:an:address", "not:an:address"),
        ("::ffff:10.0.0.1.nip.io", "::ffff:10.0.0.1.nip.io"),
    ],
)
def test_ip_addresses_are_normalized(host: str, expected: str) -> None:
    assert normalize_host(host) == expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("2001:db8:0:1:ffff::2", "2001:db8:0:1::/64"),
        ("2001:db8:0:2::1", "2001:db8:0:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("not:an:address", "not:an:address"),
    ],
)
def test_ipv6_clients_are_counted_by_their_64_bit_network(host: str, expected: str) -> None:
    assert client_network(host) == expected
