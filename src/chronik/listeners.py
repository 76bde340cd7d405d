"""Listener configuration: the ports on which a node accepts Kafka clients, their names and advertised addresses.

Kafka's configs define them: `listeners`, `advertised.listeners`, `listener.security.protocol.map` and
`inter.broker.listener.name`. The keys `kafka` and `advertised` are a short form for one listener named PLAINTEXT.
Validation follows Kafka; docs/reference/differences-from-kafka.md lists the exceptions.
"""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import combinations
from typing import Final, NamedTuple

from chronik.errors import ConfigError
from chronik.escaping import truncate_text

VALUE_CHARACTERS_MAX: Final = 200
"""Maximum characters of an invalid value that an error message quotes."""

_LABEL: Final = "[0-9A-Za-z%_:-]{1,63}"
_HOST_PORT: Final = re.compile(rf"(\[)?((?:{_LABEL}\.)*{_LABEL}\.?)(?(1)\]):([0-9]{{1,5}})")
"""HOST:PORT. A host consists of valid DNS labels in the characters that Kafka allows; an IPv6 address may be in
brackets."""


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse `HOST:PORT` or `[IPV6]:PORT`.

        Raises:
            ValueError: The text has another form; the message describes the expected form.
        """
        found = _HOST_PORT.fullmatch(text)
        if found is None or int(found[3]) > 65535 or (":" in found[2] and not _parse_ip_bytes(found[2])):
            raise ValueError("HOST:PORT, such as 127.0.0.1:9092")
        return cls(found[2], int(found[3]))


def _parse_ip_bytes(host: str) -> bytes:
    """Return the 4 or 16 bytes of an IP address, or an empty string for a host name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return socket.inet_pton(family, host.partition("%")[0])
        except OSError:
            continue
    return b""


def is_wildcard_host(host: str) -> bool:
    """Return whether the host is the wildcard address (0.0.0.0 or ::), which must not be advertised to clients."""
    address = _parse_ip_bytes(host)
    return bool(address) and not any(address)


def is_loopback_address(host: str) -> bool:
    """Return whether only this machine can reach an IP address, or the name `localhost`."""
    address = _parse_ip_bytes(host)
    return host == "localhost" or (len(address) == 4 and address[0] == 127) or address == bytes([0] * 15 + [1])


ADDRESS_IN_USE: Final = (
    "address already in use; stop the process that uses it, or choose another port with --kafka, --http or --registry, "
    "or with kafka, http, registry and raft in the config file"
)


@contextmanager
def explain_bind_error(port: str) -> Iterator[None]:
    """Prefix an OSError raised in this context with the name of the port, and add advice for EADDRINUSE."""
    try:
        yield
    except OSError as error:
        reason = ADDRESS_IN_USE if error.errno == errno.EADDRINUSE else error.strerror or error
        raise OSError(f"{port}: {reason}") from error


ALL_INTERFACES: Final = "0.0.0.0"
"""Bind address of a listener without a host, which means all interfaces."""

PLAINTEXT: Final = "PLAINTEXT"
"""Kafka's security protocol without TLS and authentication, and the name of the default listener."""

SSL, SASL_PLAINTEXT, SASL_SSL = "SSL", "SASL_PLAINTEXT", "SASL_SSL"
PROTOCOLS: Final = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)
SASL_PROTOCOLS: Final = (SASL_PLAINTEXT, SASL_SSL)

LISTENERS, ADVERTISED_LISTENERS = "listeners", "advertised.listeners"
SECURITY_PROTOCOL_MAP, INTER_BROKER_LISTENER = "listener.security.protocol.map", "inter.broker.listener.name"
INTER_BROKER_PROTOCOL, CONTROLLER_LISTENERS = "security.inter.broker.protocol", "controller.listener.names"


class ListenerConfig(NamedTuple):
    """The configuration of one listener."""

    name: str
    address: Address
    """Bind address; port 0 lets the operating system choose a port."""
    advertised: Address | None
    """Address that is advertised to clients; None if there is none. Port 0 selects the bound port."""
    protocol: str = PLAINTEXT
    """Security protocol: one of PROTOCOLS."""

    def advertised_address(self, bound: Address) -> Address | None:
        """Return the address to advertise to clients when the listener is bound to `bound`."""
        if self.advertised is None or self.advertised.port:
            return self.advertised
        return Address(self.advertised.host, bound.port)


def expand_short_form_configs(kafka: Address, advertised: Address | None) -> dict[str, str]:
    """Return the Kafka configs to which the keys `kafka` and `advertised` correspond.

    Raises:
        ConfigError: The address is a wildcard, which clients cannot connect to.
    """
    if is_wildcard_host((advertised or kafka).host):
        key, value = ("kafka", kafka) if advertised is None else ("advertised", advertised)
        raise ConfigError(
            f"{key} = {str(value)!r}: clients cannot connect to this address; advertise another one with "
            '--advertised HOST:PORT or advertised = "HOST:PORT" in the config file (CHRONIK_ADVERTISED)'
        )
    return {LISTENERS: f"{PLAINTEXT}://{kafka}", ADVERTISED_LISTENERS: f"{PLAINTEXT}://{advertised or kafka}"}


def parse_listeners(configs: Mapping[str, str]) -> tuple[ListenerConfig, ...]:
    """Parse Kafka's listener configs and return the listeners, the main one first.

    Raises:
        ConfigError: The configs are invalid or contradict each other.
    """
    addresses = _parse_listener_addresses(LISTENERS, configs[LISTENERS], is_bound=True)
    _reject_shared_ports(configs[LISTENERS], addresses)
    _reject_controller_listeners(configs, addresses)
    protocols = _parse_security_protocols(configs, addresses)
    given = ADVERTISED_LISTENERS if ADVERTISED_LISTENERS in configs else LISTENERS
    advertised = (
        _parse_listener_addresses(ADVERTISED_LISTENERS, configs[ADVERTISED_LISTENERS])
        if ADVERTISED_LISTENERS in configs
        else addresses
    )
    for name, address in advertised.items():
        if name not in addresses:
            raise _config_error(
                ADVERTISED_LISTENERS,
                configs[ADVERTISED_LISTENERS],
                f"only {_join_names(addresses)}, which are in {LISTENERS}",
            )
        if is_wildcard_host(address.host):
            raise _config_error(
                given, configs[given], f"an address that clients can connect to in {ADVERTISED_LISTENERS}"
            )
    main = _find_main_listener_name(configs, advertised)
    found = [
        ListenerConfig(name, address, advertised.get(name), protocols[name]) for name, address in addresses.items()
    ]
    return tuple(sorted(found, key=lambda listener: listener.name != main))


def _find_main_listener_name(configs: Mapping[str, str], advertised: Mapping[str, Address]) -> str:
    """Return the name of the main (inter-broker) listener, whose address identifies the node."""
    between = configs.get(INTER_BROKER_PROTOCOL, PLAINTEXT).strip()
    if between != PLAINTEXT and between not in advertised:
        raise _config_error(INTER_BROKER_PROTOCOL, between, f"one of {_join_names(advertised)}")
    main = (
        configs.get(INTER_BROKER_LISTENER, between if between != PLAINTEXT else next(iter(advertised))).strip().upper()
    )
    if main not in advertised:
        raise _config_error(INTER_BROKER_LISTENER, configs[INTER_BROKER_LISTENER], f"one of {_join_names(advertised)}")
    return main


def _parse_listener_addresses(key: str, value: str, *, is_bound: bool = False) -> dict[str, Address]:
    """Parse addresses by upper-cased listener name. A bound address without a host listens on all interfaces."""
    found: dict[str, Address] = {}
    for each in value.split(","):
        name, colon, host_port = (part.strip() for part in each.partition("://"))
        name = name.upper()
        if is_bound and host_port.startswith(":") and host_port.count(":") == 1:
            host_port = ALL_INTERFACES + host_port
        if name in found:
            raise _config_error(key, value, f"unique names, but {name} occurs twice")
        try:
            if not name or not name.isprintable() or not colon:
                raise ValueError
            found[name] = Address.parse(host_port)
        except ValueError:
            raise _config_error(key, value, "NAME://HOST:PORT, separated by commas") from None
    return found


def _reject_shared_ports(value: str, addresses: Mapping[str, Address]) -> None:
    """Raise ConfigError if two listeners share a port, unless one has an IPv4 and the other an IPv6 address."""
    for (one, here), (other, there) in combinations(addresses.items(), 2):
        if 0 != here.port == there.port and {len(_parse_ip_bytes(here.host)), len(_parse_ip_bytes(there.host))} != {
            4,
            16,
        }:
            raise _config_error(LISTENERS, value, f"one port per listener, but {one} and {other} share one")


def _reject_controller_listeners(configs: Mapping[str, str], names: Mapping[str, Address]) -> None:
    """Raise ConfigError if a client listener is also a controller listener. Nodes use their `raft` ports instead."""
    for name in (each.strip().upper() for each in configs.get(CONTROLLER_LISTENERS, "").split(",")):
        if name in names:
            instead = "remove it; nodes connect to each other on their raft ports"
            raise _config_error(
                LISTENERS, configs[LISTENERS], f"no {name}, which is in {CONTROLLER_LISTENERS}: {instead}"
            )


def _parse_security_protocols(configs: Mapping[str, str], names: Mapping[str, Address]) -> dict[str, str]:
    """Return the security protocols by listener name."""
    value = configs.get(SECURITY_PROTOCOL_MAP)
    protocols = dict(zip(PROTOCOLS, PROTOCOLS, strict=True)) if value is None else _parse_protocol_map(value)
    given = (LISTENERS, configs[LISTENERS]) if value is None else (SECURITY_PROTOCOL_MAP, value)
    for name in names:
        if name not in protocols:
            named = f"{name}:{PLAINTEXT}"
            missing = f'{SECURITY_PROTOCOL_MAP} = "{named}"' if value is None else f"{named} in it"
            raise _config_error(*given, f"{missing}: listener {name} has no security protocol")
    return protocols


def _parse_protocol_map(value: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in value.split(","):
        name, colon, protocol = (part.strip().upper() for part in each.partition(":"))
        if not name or not colon or protocol not in PROTOCOLS or name in found:
            raise _config_error(
                SECURITY_PROTOCOL_MAP, value, f"NAME:PROTOCOL with unique names and {' or '.join(PROTOCOLS)}"
            )
        found[name] = protocol
    return found


def _join_names(listeners: Mapping[str, Address]) -> str:
    return ", ".join(listeners)


def _config_error(key: str, value: str, expected: str) -> ConfigError:
    return ConfigError(f"broker: {key} = {truncate_text(repr(value), VALUE_CHARACTERS_MAX)}: expected {expected}")
