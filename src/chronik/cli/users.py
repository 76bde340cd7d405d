"""`chronik users`: list, add, alter and delete SCRAM users."""

from __future__ import annotations

import argparse

from chronik.cli.arguments import InvalidInput, add_client_arguments, add_json_argument, connect_cluster
from chronik.cli.output import format_table, print_json
from chronik.cli.passwords import add_password_argument, read_password
from chronik.client.security import delete_user, list_users, set_password
from chronik.security.sasl.scram_keys import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISMS_BY_NAME


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list users and their SCRAM mechanisms")
    add_json_argument(listing)
    add_client_arguments(listing, run_list)
    for action, run, summary in (
        ("add", run_add, "add a user; the password is read from a file, the environment or a prompt"),
        ("alter", run_alter, "change a user's password"),
    ):
        change = actions.add_parser(action, help=summary)
        change.add_argument("name", metavar="NAME", help="name of the user")
        change.add_argument(
            "--mechanism",
            action="append",
            choices=list(MECHANISMS_BY_NAME),
            help="SCRAM mechanism to set (default: both)",
        )
        change.add_argument(
            "--iterations",
            type=_parse_iterations,
            default=ITERATIONS_MIN,
            metavar="N",
            help="SCRAM iterations (default: %(default)d)",
        )
        add_password_argument(change)
        add_client_arguments(change, run)
    delete = actions.add_parser("delete", help="delete a user; its open connections are not closed")
    delete.add_argument("name", metavar="NAME", help="name of the user")
    add_client_arguments(delete, run_delete)


def run_list(arguments: argparse.Namespace) -> int:
    with connect_cluster(arguments) as cluster:
        users = list_users(cluster)
    if arguments.json:
        print_json([{"name": name, "mechanisms": mechanisms} for name, mechanisms in users.items()])
    else:
        rows = [(name, *(mechanisms.get(each) for each in MECHANISMS_BY_NAME)) for name, mechanisms in users.items()]
        print(format_table(["USER", *(f"{name} ITERATIONS" for name in MECHANISMS_BY_NAME)], rows))
    return 0


def run_add(arguments: argparse.Namespace) -> int:
    return _set_password(arguments, must_exist=False)


def run_alter(arguments: argparse.Namespace) -> int:
    return _set_password(arguments, must_exist=True)


def _set_password(arguments: argparse.Namespace, *, must_exist: bool) -> int:
    name = arguments.name
    with connect_cluster(arguments) as cluster:
        exists = name in list_users(cluster, [name])
        if exists and not must_exist:
            raise InvalidInput(f"user {name!r} already exists; use chronik users alter to change its password")
        if must_exist and not exists:
            raise InvalidInput(f"user {name!r} does not exist; use chronik users add to create it")
        password = read_password(arguments.password_file, name)
        set_password(cluster, name, password, arguments.mechanism or list(MECHANISMS_BY_NAME), arguments.iterations)
    print(f"{'changed' if must_exist else 'added'} user {name}")
    return 0


def run_delete(arguments: argparse.Namespace) -> int:
    with connect_cluster(arguments) as cluster:
        delete_user(cluster, arguments.name)
    print(f"deleted user {arguments.name}")
    return 0


def _parse_iterations(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if not ITERATIONS_MIN <= number <= ITERATIONS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r}: expected an integer from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return number
