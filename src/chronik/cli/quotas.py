"""`chronik quotas`: list, set and remove client quotas (kafka-configs.sh)."""

from __future__ import annotations

import argparse
import re
from typing import Final

from chronik.cli.arguments import CommandRunner, InvalidInput, add_client_arguments, add_json_argument, connect_cluster
from chronik.cli.output import format_table, print_json
from chronik.client.security import alter_quotas, describe_quotas

UNITS: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
DEFAULT_ENTITY_NAME: Final = "<default>"
ENTITY_TYPES: Final = {"user": "a user", "client-id": "a client id", "ip": "an IP address"}
QUOTA_KEYS: Final = {
    "producer_byte_rate": "bytes per second that may be produced, such as 500k or 1M",
    "consumer_byte_rate": "bytes per second that may be fetched",
    "request_percentage": "percentage of a node's request processing time, at most 100",
    "controller_mutation_rate": "partitions per second that may be created or deleted",
    "connection_creation_rate": "new connections per second from an IP address",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    _add_entity_arguments(actions.add_parser("list", help="list all quotas, or the quotas of an entity"), run_list)
    setting = actions.add_parser("set", help="set quotas of a user, a client id, both, or an IP address")
    for key, what in QUOTA_KEYS.items():
        setting.add_argument(_format_option(key), type=_parse_rate, metavar="N", help=what)
    _add_entity_arguments(setting, run_set)
    removing = actions.add_parser("remove", help="remove the given quotas of an entity, or all of them")
    for key in QUOTA_KEYS:
        removing.add_argument(_format_option(key), action="store_true", help="remove this quota")
    _add_entity_arguments(removing, run_remove)


def _add_entity_arguments(parser: argparse.ArgumentParser, run: CommandRunner) -> None:
    for kind, what in ENTITY_TYPES.items():
        options = parser.add_mutually_exclusive_group()
        options.add_argument(f"--{kind}", metavar="NAME", help=what)
        options.add_argument(f"--default-{kind}", action="store_true", help=f"the default for {what} without a quota")
    add_json_argument(parser)
    add_client_arguments(parser, run)


def run_list(arguments: argparse.Namespace) -> int:
    with connect_cluster(arguments) as cluster:
        found = describe_quotas(cluster, _parse_entity(arguments))
    if arguments.json:
        print_json([{"entity": entity, "quotas": values} for entity, values in found])
        return 0
    rows = [
        [*(_format_entity_name(entity, kind) for kind in ENTITY_TYPES), key, f"{value:.15g}"]
        for entity, values in found
        for key, value in values.items()
    ]
    print(format_table(("USER", "CLIENT ID", "IP", "QUOTA", "VALUE"), rows))
    return 0


def run_set(arguments: argparse.Namespace) -> int:
    given = {key: getattr(arguments, key) for key in QUOTA_KEYS}
    changes = {key: value for key, value in given.items() if value is not None}
    if not changes:
        raise InvalidInput(f"no quota given: use one of {', '.join(map(_format_option, QUOTA_KEYS))}")
    return _alter_quotas(arguments, changes)


def run_remove(arguments: argparse.Namespace) -> int:
    named = [key for key in QUOTA_KEYS if getattr(arguments, key)]
    return _alter_quotas(arguments, dict.fromkeys(named))


def _alter_quotas(arguments: argparse.Namespace, changes: dict[str, float | None]) -> int:
    """Alter an entity's quotas; without `changes`, remove all of them."""
    named = _parse_entity(arguments)
    if not named:
        raise InvalidInput(
            "no entity given: use --user, --client-id or --ip, or one of their defaults (--default-user, …)"
        )
    with connect_cluster(arguments) as cluster:
        if not changes:
            own = [values for entity, values in describe_quotas(cluster, named) if entity == named]
            changes = {key: None for values in own for key in values}
        alter_quotas(cluster, named, changes)
    if arguments.json:
        print_json({"entity": named, "changed": changes})
        return 0
    entity_name = ", ".join(f"{kind} {DEFAULT_ENTITY_NAME if name is None else name}" for kind, name in named.items())
    for key, value in changes.items():
        print(f"{entity_name}: {key} " + ("removed" if value is None else f"set to {value:.15g}"))
    return 0


def _parse_entity(arguments: argparse.Namespace) -> dict[str, str | None]:
    named: dict[str, str | None] = {}
    for kind in ENTITY_TYPES:
        attribute = kind.replace("-", "_")
        name = getattr(arguments, attribute)
        if name is not None or getattr(arguments, f"default_{attribute}"):
            named[kind] = name
    return named


def _format_entity_name(entity: dict[str, str | None], kind: str) -> str | None:
    if kind not in entity:
        return None
    name = entity[kind]
    return DEFAULT_ENTITY_NAME if name is None else name


def _format_option(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _parse_rate(text: str) -> float:
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([kMG]?)", text)
    if match is None or float(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number greater than 0, such as 1000000, 500k or 12.5")
    return float(match[1]) * UNITS[match[2]]
