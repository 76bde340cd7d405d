"""A node's listeners: each a port with a name, and the address at which clients are told to find it.

Kafka's own configs name them: `listeners`, `advertised.listeners`, `listener.security.protocol.map` and
`inter.broker.listener.name`. `kafka` and `advertised` are the short form for one that is called PLAINTEXT. What is
accepted and refused is what Kafka accepts and refuses, but for what docs/differences-from-kafka.md says.
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
from chronik.shown import shortened

VALUE_CHARACTERS_MAX: Final = 200
"""How much of a wrong value an error repeats."""

_LABEL: Final = "[0-9A-Za-z%_:-]{1,63}"
_PLACE: Final = re.compile(rf"(\[)?((?:{_LABEL}\.)*{_LABEL}\.?)(?(1)\]):([0-9]{{1,5}})")
"""A host has the characters that Kafka takes, and labels that can be looked up; an IPv6 address may be in brackets."""


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Raises ValueError with what is expected."""
        found = _PLACE.fullmatch(text)
        if found is None or int(found[3]) > 65535 or (":" in found[2] and not _ip(found[2])):
            raise ValueError("HOST:PORT, such as 127.0.0.1:9092")
        return cls(found[2], int(found[3]))


def _ip(host: str) -> bytes:
    """Returns the 4 or 16 bytes of an IP address; none for a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return socket.inet_pton(family, host.partition("%")[0])
        except OSError:
            continue
    return b""


def _is_everywhere(host: str) -> bool:
    """A node can listen there, but no client of another machine can connect to it: Kafka refuses it too."""
    address = _ip(host)
    return bool(address) and not any(address)


ADDRESS_IN_USE: Final = (
    "address already in use; end who has it, or choose another port: --kafka and --http, or kafka, http and raft in "
    "the config file"
)


@contextmanager
def naming(port: str) -> Iterator[None]:
    """Makes an OSError say which port could not be taken, and what to do if another program has it."""
    try:
        yield
    except OSError as error:
        why = ADDRESS_IN_USE if error.errno == errno.EADDRINUSE else error.strerror or error
        raise OSError(f"{port}: {why}") from error


EVERYWHERE: Final = "0.0.0.0"
"""Where a listener that names no host listens."""

PLAINTEXT: Final = "PLAINTEXT"
"""The listener of a node that names none is called the same."""

SSL, SASL_PLAINTEXT, SASL_SSL = "SSL", "SASL_PLAINTEXT", "SASL_SSL"
PROTOCOLS: Final = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)
WITH_SASL: Final = (SASL_PLAINTEXT, SASL_SSL)

LISTENERS, ADVERTISED = "listeners", "advertised.listeners"
PROTOCOL_MAP, MAIN_LISTENER = "listener.security.protocol.map", "inter.broker.listener.name"
BETWEEN_BROKERS, OF_CONTROLLERS = "security.inter.broker.protocol", "controller.listener.names"


class ListenerConfig(NamedTuple):
    name: str
    address: Address
    """A port of 0 is one that the system chooses."""
    advertised: Address | None
    """None: no client is told of it. A port of 0 is the one that was bound."""
    protocol: str = PLAINTEXT
    """One of PROTOCOLS."""

    def told(self, bound: Address) -> Address | None:
        """Returns the address that clients are told when it listens at `bound`."""
        if self.advertised is None or self.advertised.port:
            return self.advertised
        return Address(self.advertised.host, bound.port)


def short_form(kafka: Address, advertised: Address | None) -> dict[str, str]:
    """Returns what Kafka's configs would say. Raises ConfigError."""
    if _is_everywhere((advertised or kafka).host):
        key, value = ("kafka", kafka) if advertised is None else ("advertised", advertised)
        raise ConfigError(
            f"{key} = {str(value)!r} is no address that clients can connect to: give them one with "
            '--advertised HOST:PORT, or with advertised = "HOST:PORT" in the config file (CHRONIK_ADVERTISED)'
        )
    return {LISTENERS: f"{PLAINTEXT}://{kafka}", ADVERTISED: f"{PLAINTEXT}://{advertised or kafka}"}


def named_listeners(configs: Mapping[str, str]) -> tuple[ListenerConfig, ...]:
    """Reads Kafka's configs. The main listener comes first. Raises ConfigError."""
    addresses = _parsed(LISTENERS, configs[LISTENERS], is_bound=True)
    _refuse_shared_ports(configs[LISTENERS], addresses)
    _refuse_controllers(configs, addresses)
    protocols = _protocols_of(configs, addresses)
    given = ADVERTISED if ADVERTISED in configs else LISTENERS
    advertised = _parsed(ADVERTISED, configs[ADVERTISED]) if ADVERTISED in configs else addresses
    for name, address in advertised.items():
        if name not in addresses:
            raise _wrong(ADVERTISED, configs[ADVERTISED], f"only {_names(addresses)}, which are in {LISTENERS}")
        if _is_everywhere(address.host):
            raise _wrong(given, configs[given], f"an address for clients to connect to in {ADVERTISED}")
    main = _main(configs, advertised)
    found = [
        ListenerConfig(name, address, advertised.get(name), protocols[name]) for name, address in addresses.items()
    ]
    return tuple(sorted(found, key=lambda listener: listener.name != main))


def _main(configs: Mapping[str, str], advertised: Mapping[str, Address]) -> str:
    """Returns the listener that stands for the node; one that is named by its protocol is called like it, in Kafka."""
    between = configs.get(BETWEEN_BROKERS, PLAINTEXT).strip()
    if between != PLAINTEXT and between not in advertised:
        raise _wrong(BETWEEN_BROKERS, between, f"one of {_names(advertised)}")
    main = configs.get(MAIN_LISTENER, between if between != PLAINTEXT else next(iter(advertised))).strip().upper()
    if main not in advertised:
        raise _wrong(MAIN_LISTENER, configs[MAIN_LISTENER], f"one of {_names(advertised)}")
    return main


def _parsed(key: str, value: str, *, is_bound: bool = False) -> dict[str, Address]:
    """Returns addresses by name, in capitals as in Kafka. A port without a host is bound on every interface."""
    found: dict[str, Address] = {}
    for each in value.split(","):
        name, colon, place = (part.strip() for part in each.partition("://"))
        name = name.upper()
        if is_bound and place.startswith(":") and place.count(":") == 1:
            place = EVERYWHERE + place
        if name in found:
            raise _wrong(key, value, f"every name once, and {name} stands there twice")
        try:
            if not name or not name.isprintable() or not colon:
                raise ValueError
            found[name] = Address.parse(place)
        except ValueError:
            raise _wrong(key, value, "NAME://HOST:PORT, and a comma between two") from None
    return found


def _refuse_shared_ports(value: str, addresses: Mapping[str, Address]) -> None:
    """Two may have one port only if both have IP addresses, one of IPv4 and one of IPv6."""
    for (one, here), (other, there) in combinations(addresses.items(), 2):
        if 0 != here.port == there.port and {len(_ip(here.host)), len(_ip(there.host))} != {4, 16}:
            raise _wrong(LISTENERS, value, f"a port for each, and {one} and {other} have the same")


def _refuse_controllers(configs: Mapping[str, str], names: Mapping[str, Address]) -> None:
    """Clients must not be served where Kafka's brokers speak to its controllers."""
    for name in (each.strip().upper() for each in configs.get(OF_CONTROLLERS, "").split(",")):
        if name in names:
            instead = "leave it out; nodes speak to each other on their raft ports"
            raise _wrong(LISTENERS, configs[LISTENERS], f"no {name}, which {OF_CONTROLLERS} names: {instead}")


def _protocols_of(configs: Mapping[str, str], names: Mapping[str, Address]) -> dict[str, str]:
    """Returns the protocol of each listener."""
    value = configs.get(PROTOCOL_MAP)
    protocols = dict(zip(PROTOCOLS, PROTOCOLS, strict=True)) if value is None else _protocols(value)
    given = (LISTENERS, configs[LISTENERS]) if value is None else (PROTOCOL_MAP, value)
    for name in names:
        if name not in protocols:
            named = f"{name}:{PLAINTEXT}"
            missing = f'{PROTOCOL_MAP} = "{named}" beside it' if value is None else f"{named} in it"
            raise _wrong(*given, f"{missing}: no protocol is named for {name}")
    return protocols


def _protocols(value: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in value.split(","):
        name, colon, protocol = (part.strip().upper() for part in each.partition(":"))
        if not name or not colon or protocol not in PROTOCOLS or name in found:
            raise _wrong(PROTOCOL_MAP, value, f"NAME:PROTOCOL, every name once, with {' or '.join(PROTOCOLS)}")
        found[name] = protocol
    return found


def _names(listeners: Mapping[str, Address]) -> str:
    return ", ".join(listeners)


def _wrong(key: str, value: str, expected: str) -> ConfigError:
    return ConfigError(f"broker: {key} = {shortened(repr(value), VALUE_CHARACTERS_MAX)}: expected {expected}")
