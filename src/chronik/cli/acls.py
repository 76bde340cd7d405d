"""`chronik acls`: list, add and remove ACLs, with the options of kafka-acls.sh."""

from __future__ import annotations

import argparse
from enum import IntEnum
from itertools import product
from typing import Any, Final

from chronik.cli.arguments import InvalidInput, add_client_arguments, add_json_argument, connect_cluster
from chronik.cli.output import format_table, print_json
from chronik.client.acl_presets import ResourceOperation, list_consumer_operations, list_producer_operations
from chronik.client.security import MATCH_ANY, AclBinding, AclFilter, add_acls, list_acls, remove_acls
from chronik.principals import Principal
from chronik.protocol.permissions import CLUSTER_NAME, AclOperation, AclResourceType
from chronik.security.acls import MATCH_PATTERN, AclPermission, PatternType

RESOURCE_TYPES: Final = {
    "topic": AclResourceType.TOPIC,
    "group": AclResourceType.GROUP,
    "transactional_id": AclResourceType.TRANSACTIONAL_ID,
    "delegation_token": AclResourceType.DELEGATION_TOKEN,
    "user_principal": AclResourceType.USER,
    "subject": AclResourceType.SUBJECT,
}
PATTERNS: Final = {
    "literal": PatternType.LITERAL,
    "prefixed": PatternType.PREFIXED,
    "any": MATCH_ANY,
    "match": MATCH_PATTERN,
}
ANY_HOST: Final = "*"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="list all ACLs, or the ACLs of a resource or a principal")
    _add_resources(listing, [*PATTERNS], "any")
    listing.add_argument("--principal", metavar="TYPE:NAME", help="list only this principal's ACLs, such as User:alice")
    add_json_argument(listing)
    add_client_arguments(listing, run_list)

    for name, help, run in (
        ("add", "allow or deny operations on resources", run_add),
        ("remove", "remove ACLs", run_remove),
    ):
        action = actions.add_parser(name, help=help)
        _add_resources(action, ["literal", "prefixed"], "literal")
        action.add_argument(
            "--allow-principal",
            action="append",
            default=[],
            metavar="TYPE:NAME",
            help="principal that is allowed, such as User:alice",
        )
        action.add_argument(
            "--deny-principal", action="append", default=[], metavar="TYPE:NAME", help="principal that is denied"
        )
        action.add_argument(
            "--allow-host",
            action="append",
            default=[],
            metavar="HOST",
            help="host from which the principal is allowed (default: any)",
        )
        action.add_argument(
            "--deny-host",
            action="append",
            default=[],
            metavar="HOST",
            help="host from which the principal is denied (default: any)",
        )
        action.add_argument(
            "--operation", action="append", default=[], metavar="NAME", help="Read, Write, Describe, … (default: All)"
        )
        action.add_argument(
            "--producer",
            action="store_true",
            help="the ACLs of a producer: Write, Describe and Create on --topic, Write and Describe on"
            " --transactional-id",
        )
        action.add_argument(
            "--idempotent",
            action="store_true",
            help="with --producer, also IdempotentWrite on the cluster, which brokers of Kafka before 2.8 require",
        )
        action.add_argument(
            "--consumer",
            action="store_true",
            help="the ACLs of a consumer: Read and Describe on --topic, Read on --group",
        )
        add_json_argument(action)
        add_client_arguments(action, run)


def _add_resources(parser: argparse.ArgumentParser, patterns: list[str], default: str) -> None:
    for name in RESOURCE_TYPES:
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, action="append", default=[], metavar="NAME", help="resource name, or '*' for all")
    parser.add_argument("--cluster", action="store_true", help="the cluster itself")
    parser.add_argument(
        "--resource-pattern-type",
        choices=patterns,
        default=default,
        help="how resource names are matched (default: %(default)s)",
    )
    parser.add_argument(
        "--prefixed",
        dest="resource_pattern_type",
        action="store_const",
        const="prefixed",
        help="match resources whose names start with the given names (same as --resource-pattern-type prefixed)",
    )


def run_list(arguments: argparse.Namespace) -> int:
    pattern = PATTERNS[arguments.resource_pattern_type]
    named: list[tuple[int, str | None]] = [*_parse_resources(arguments)]
    filters = [AclFilter(kind, name, pattern, arguments.principal) for kind, name in named or [(MATCH_ANY, None)]]
    with connect_cluster(arguments) as cluster:
        found = dict.fromkeys(acl for each in filters for acl in list_acls(cluster, each))
    _print_acls(arguments, list(found))
    return 0


def run_add(arguments: argparse.Namespace) -> int:
    acls = _parse_bindings(arguments)
    with connect_cluster(arguments) as cluster:
        add_acls(cluster, acls)
    _print_acls(arguments, acls)
    return 0


def run_remove(arguments: argparse.Namespace) -> int:
    """Remove ACLs of the given principals on the selected resources, or those of all principals."""
    if arguments.allow_principal or arguments.deny_principal or arguments.producer or arguments.consumer:
        filters = [AclFilter(*acl) for acl in _parse_bindings(arguments)]
    else:
        pattern = PATTERNS[arguments.resource_pattern_type]
        filters = [AclFilter(kind, name, pattern) for kind, name in _require_resources(arguments)]
    with connect_cluster(arguments) as cluster:
        removed = remove_acls(cluster, filters)
    _print_acls(arguments, removed)
    return 0


def _parse_resources(arguments: argparse.Namespace) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = [
        (kind, name) for option, kind in RESOURCE_TYPES.items() for name in getattr(arguments, option)
    ]
    return [*found, (AclResourceType.CLUSTER, CLUSTER_NAME)] if arguments.cluster else found


def _require_resources(arguments: argparse.Namespace) -> list[tuple[int, str]]:
    """Return the resources that the command-line options select; raise InvalidInput if there are none."""
    found = _parse_resources(arguments)
    if not found:
        raise InvalidInput("no resource given: use --topic, --group, --transactional-id or --cluster")
    return found


def _parse_bindings(arguments: argparse.Namespace) -> list[AclBinding]:
    """Return the ACL bindings specified by the options; raise InvalidInput if there are none."""
    operations = _list_operations(arguments)
    found = []
    for permission, principals, hosts in (
        (AclPermission.ALLOW, arguments.allow_principal, arguments.allow_host),
        (AclPermission.DENY, arguments.deny_principal, arguments.deny_host),
    ):
        if hosts and not principals:
            raise InvalidInput("--allow-host requires --allow-principal, and --deny-host requires --deny-principal")
        for (kind, name, pattern, operation), who, host in product(
            operations, map(_parse_principal, principals), hosts or [ANY_HOST]
        ):
            found.append(AclBinding(kind, name, pattern, who, host, operation, permission))
    if not found:
        raise InvalidInput("no principal given: use --allow-principal User:NAME or --deny-principal User:NAME")
    return found


def _list_operations(arguments: argparse.Namespace) -> list[ResourceOperation]:
    """Return the operations on resources that the options select; raise InvalidInput if they are contradictory."""
    pattern = PatternType(PATTERNS[arguments.resource_pattern_type])
    if arguments.idempotent and not arguments.producer:
        raise InvalidInput("--idempotent requires --producer")
    if not arguments.producer and not arguments.consumer:
        operations = [parse_operation(each) for each in arguments.operation] or [AclOperation.ALL]
        return [
            ResourceOperation(
                AclResourceType(kind), name, PatternType.LITERAL if kind == AclResourceType.CLUSTER else pattern, each
            )
            for kind, name in _require_resources(arguments)
            for each in operations
        ]
    _check_preset_options(arguments)
    selected: list[ResourceOperation] = []
    if arguments.producer:
        selected += list_producer_operations(
            arguments.topic, arguments.transactional_id, pattern, idempotent=arguments.idempotent
        )
    if arguments.consumer:
        selected += list_consumer_operations(arguments.topic, arguments.group, pattern)
    return list(dict.fromkeys(selected))


def _check_preset_options(arguments: argparse.Namespace) -> None:
    """Raise InvalidInput if options have no meaning for a producer or a consumer."""
    if arguments.operation or arguments.deny_principal or arguments.deny_host:
        raise InvalidInput(
            "--producer and --consumer cannot be combined with --operation, --deny-principal or --deny-host"
        )
    if not arguments.allow_principal:
        raise InvalidInput("--producer and --consumer require --allow-principal User:NAME")
    if not arguments.topic:
        raise InvalidInput("--producer and --consumer require --topic")
    if arguments.consumer and not arguments.group:
        raise InvalidInput("--consumer requires --group")
    unused = {
        "--group": arguments.group and not arguments.consumer,
        "--transactional-id": arguments.transactional_id and not arguments.producer,
        "--cluster": arguments.cluster,
        "--delegation-token": arguments.delegation_token,
        "--user-principal": arguments.user_principal,
        "--subject": arguments.subject,
    }
    for option, is_unused in unused.items():
        if is_unused:
            preset = "--producer" if arguments.producer else "--consumer"
            raise InvalidInput(f"{preset} creates no ACLs for {option}")


def _parse_principal(text: str) -> str:
    try:
        return str(Principal.parse(text))
    except ValueError as error:
        raise InvalidInput(f"{text!r}: expected {error}") from None


def parse_operation(text: str) -> AclOperation:
    known = {format_enum(AclOperation, each).lower(): each for each in AclOperation}
    if text.lower().replace("_", "") not in known:
        every = ", ".join(format_enum(AclOperation, each) for each in AclOperation)
        raise InvalidInput(f"unknown operation {text!r}: expected one of {every}")
    return known[text.lower().replace("_", "")]


def format_enum(words: type[IntEnum], number: int) -> str:
    name = {each.value: each.name for each in words}.get(number, str(number))
    return "".join(map(str.capitalize, name.split("_")))


def acl_to_json(acl: AclBinding) -> dict[str, Any]:
    return {
        "resource_type": format_enum(AclResourceType, acl.resource_type),
        "resource_name": acl.name,
        "pattern_type": format_enum(PatternType, acl.pattern_type),
        "principal": acl.principal,
        "host": acl.host,
        "operation": format_enum(AclOperation, acl.operation),
        "permission": format_enum(AclPermission, acl.permission),
    }


def _print_acls(arguments: argparse.Namespace, acls: list[AclBinding]) -> None:
    listed = [acl_to_json(acl) for acl in acls]
    if arguments.json:
        print_json(listed)
    else:
        headings = ("RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION")
        print(format_table(headings, ([*each.values()] for each in listed)))
