"""A node's listeners: each a port with a name, and the address at which clients are told to find it.

Kafka's own configs name them: `listeners`, `advertised.listeners`, `listener.security.protocol.map` and
`inter.broker.listener.name`. `kafka` and `advertised` are the short form for one that is called PLAINTEXT. What Kafka
refuses is refused here, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from chronik.errors import ConfigError
from chronik.shown import shortened

VALUE_CHARACTERS_MAX: Final = 200
"""How much of a wrong value an error repeats."""


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address:
        host, colon, port = text.rpartition(":")
        host = host.strip("[]")
        if not colon or not host or not port.isdigit() or int(port) > 65535:
            raise ValueError("HOST:PORT, such as 127.0.0.1:9092")
        return cls(host, int(port))


EVERYWHERE: Final = ("0.0.0.0", "::")
"""A node can listen on these, but no client can connect to them from another machine: Kafka refuses them too."""

PLAINTEXT: Final = "PLAINTEXT"
"""The only protocol so far; the listener of a node that names none is called the same."""

PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")

LISTENERS, ADVERTISED = "listeners", "advertised.listeners"
PROTOCOL_MAP, MAIN_LISTENER = "listener.security.protocol.map", "inter.broker.listener.name"


class ListenerConfig(NamedTuple):
    name: str
    address: Address
    """A port of 0 is one that the system chooses."""
    advertised: Address | None
    """None: no client is told of it. A port of 0 is the one that was bound."""

    def told(self, bound: Address) -> Address | None:
        """Returns the address that clients are told when it listens at `bound`."""
        if self.advertised is None or self.advertised.port:
            return self.advertised
        return Address(self.advertised.host, bound.port)


def one_listener(kafka: Address, advertised: Address | None) -> tuple[ListenerConfig, ...]:
    """Reads the short form. Raises ConfigError."""
    if (advertised or kafka).host in EVERYWHERE:
        key, value = ("kafka", kafka) if advertised is None else ("advertised", advertised)
        beside = 'advertised = "HOST:PORT" beside it, for' if advertised is None else "an address for"
        raise ConfigError(f"{key} = {str(value)!r}: expected {beside} clients to connect to")
    return (ListenerConfig(PLAINTEXT, kafka, advertised or kafka),)


def named_listeners(configs: Mapping[str, str]) -> tuple[ListenerConfig, ...]:
    """Reads Kafka's configs. The main listener comes first. Raises ConfigError."""
    addresses = _parsed(LISTENERS, configs[LISTENERS], is_bound=True)
    _refuse_shared_ports(configs[LISTENERS], addresses)
    _refuse_other_protocols(configs, addresses)
    given = ADVERTISED if ADVERTISED in configs else LISTENERS
    advertised = _parsed(ADVERTISED, configs[ADVERTISED]) if ADVERTISED in configs else addresses
    for name, address in advertised.items():
        if name not in addresses:
            raise _wrong(ADVERTISED, configs[ADVERTISED], f"only {_names(addresses)}, which are in {LISTENERS}")
        if address.host in EVERYWHERE:
            raise _wrong(given, configs[given], f"an address for clients to connect to in {ADVERTISED}")
    main = configs.get(MAIN_LISTENER, next(iter(advertised))).upper()
    if main not in advertised:
        raise _wrong(MAIN_LISTENER, configs[MAIN_LISTENER], f"one of {_names(advertised)}")
    found = [ListenerConfig(name, address, advertised.get(name)) for name, address in addresses.items()]
    return tuple(sorted(found, key=lambda listener: listener.name != main))


def _parsed(key: str, value: str, *, is_bound: bool = False) -> dict[str, Address]:
    """Returns addresses by name, in capitals as in Kafka. A port without a host is bound on every interface."""
    found: dict[str, Address] = {}
    for each in value.split(","):
        name, colon, place = (part.strip() for part in each.partition("://"))
        name = name.upper()
        if is_bound and place.startswith(":"):
            place = EVERYWHERE[0] + place
        if name in found:
            raise _wrong(key, value, f"every name once, and {name} stands there twice")
        try:
            if not name or not colon:
                raise ValueError
            found[name] = Address.parse(place)
        except ValueError:
            raise _wrong(key, value, "NAME://HOST:PORT, and a comma between two") from None
    return found


def _refuse_shared_ports(value: str, addresses: Mapping[str, Address]) -> None:
    """Two listeners may share a port only if one of them is for IPv6 and the other is not."""
    seen: dict[tuple[int, bool], str] = {}
    for name, address in addresses.items():
        other = seen.setdefault((address.port, ":" in address.host), name)
        if address.port and other != name:
            raise _wrong(LISTENERS, value, f"a port for each, and {other} and {name} have the same")


def _refuse_other_protocols(configs: Mapping[str, str], names: Mapping[str, Address]) -> None:
    value = configs.get(PROTOCOL_MAP)
    protocols = dict(zip(PROTOCOLS, PROTOCOLS, strict=True)) if value is None else _protocols(value)
    for name in names:
        if name not in protocols:
            hint = f'{PROTOCOL_MAP} = "{name}:{PLAINTEXT}" beside it: no protocol is named for {name}'
            raise _wrong(LISTENERS, configs[LISTENERS], hint)
        if protocols[name] != PLAINTEXT:
            told = f"{PLAINTEXT} for {name}: this version of Chronik does not speak {protocols[name]}"
            raise _wrong(*((LISTENERS, configs[LISTENERS]) if value is None else (PROTOCOL_MAP, value)), told)


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
