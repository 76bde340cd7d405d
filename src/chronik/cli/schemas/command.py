"""`chronik schemas`: the parser of its subcommands, and `list`, `show`, `config` and `delete`."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

import msgspec

from chronik.cli.arguments import InvalidInput, add_json_argument, parse_positive_int
from chronik.cli.output import format_table, print_json
from chronik.cli.schemas import registration, transfer
from chronik.cli.schemas.registry_access import add_registry_arguments
from chronik.cli.schemas.schema_diff import format_schema
from chronik.cli.schemas.schema_files import parse_version
from chronik.client.registry import (
    ALL_CONTEXTS,
    COMPATIBILITY_LEVELS,
    LATEST,
    MODE_READONLY,
    MODES,
    SUBJECT_SOFT_DELETED,
    VERSION_SOFT_DELETED,
    RegistryAdminClient,
    RegistryAdminError,
    SchemaVersion,
)
from chronik.migration.schemas.exporter import map_concurrently
from chronik.migration.schemas.registry_export import SchemaKey
from chronik.wording import pluralize

EXIT_OK, EXIT_FAILED = 0, 1
UNSET: Final = "unset"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="list subjects with their versions and compatibility levels")
    listing.add_argument(
        "--prefix", default=ALL_CONTEXTS, metavar="PREFIX", help="only subjects that start with PREFIX"
    )
    listing.add_argument("--deleted", action="store_true", help="also list soft-deleted subjects and versions")
    add_json_argument(listing)
    add_registry_arguments(listing, run_list)

    show = actions.add_parser("show", help="show a version of a subject, or the schema with an id")
    show.add_argument("subject", nargs="?", metavar="SUBJECT", help="subject, such as orders-value")
    show.add_argument(
        "--version", type=parse_version, metavar="N", help="version, a number or latest (default: latest)"
    )
    show.add_argument("--id", type=parse_positive_int, metavar="ID", help="schema id, instead of a subject")
    show.add_argument("--deleted", action="store_true", help="also find soft-deleted versions")
    show.add_argument("--raw", action="store_true", help="print only the text of the schema, as it is stored")
    add_json_argument(show)
    add_registry_arguments(show, run_show)

    registration.add_arguments(actions)

    config = actions.add_parser("config", help="show or set the compatibility level and mode of a subject, or globally")
    config.add_argument("subject", nargs="?", metavar="SUBJECT", help="subject, or :.CONTEXT: (default: the registry)")
    config.add_argument(
        "--compatibility",
        type=_parse_level,
        metavar="LEVEL",
        help=f"{', '.join(COMPATIBILITY_LEVELS)}, or {UNSET} to remove the level of a subject",
    )
    config.add_argument("--mode", type=_parse_mode, metavar="MODE", help=f"{', '.join(MODES)}, or {UNSET}")
    config.add_argument("--force", action="store_true", help="set mode IMPORT although versions exist")
    add_json_argument(config)
    add_registry_arguments(config, run_config)

    delete = actions.add_parser(
        "delete", help="delete a subject or a version of it, by default so that ids stay readable"
    )
    delete.add_argument("subject", metavar="SUBJECT", help="subject to delete")
    delete.add_argument("--version", type=parse_version, metavar="N", help="delete only this version")
    delete.add_argument(
        "--permanent", action="store_true", help="delete permanently: records with these ids can no longer be decoded"
    )
    delete.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    add_json_argument(delete)
    add_registry_arguments(delete, run_delete)

    transfer.add_arguments(actions)


def _parse_level(text: str) -> str:
    return _parse_word(text, COMPATIBILITY_LEVELS)


def _parse_mode(text: str) -> str:
    return _parse_word(text, MODES)


def _parse_word(text: str, known: tuple[str, ...]) -> str:
    if text.lower() == UNSET:
        return UNSET
    if text.upper() not in known:
        raise argparse.ArgumentTypeError(f"{text!r}: expected {', '.join(known)} or {UNSET}")
    return text.upper()


# list and show


def run_list(arguments: argparse.Namespace, client: RegistryAdminClient) -> int:
    names = client.list_subjects(prefix=arguments.prefix, deleted=arguments.deleted)
    global_level = (client.find_config() or {}).get("compatibility", "BACKWARD")

    def describe(name: str) -> dict[str, Any]:
        return _describe_subject(client, name, global_level, deleted=arguments.deleted)

    subjects = [subject for subject in map_concurrently(describe, names) if subject["versions"]]
    if arguments.json:
        print_json(subjects)
    else:
        rows = [
            (each["subject"], _join_versions(each), each["id"], each["schemaType"], each["compatibility"])
            for each in subjects
        ]
        print(format_table(("SUBJECT", "VERSIONS", "LATEST ID", "TYPE", "COMPATIBILITY"), rows))
    return EXIT_OK


def _describe_subject(client: RegistryAdminClient, name: str, global_level: str, *, deleted: bool) -> dict[str, Any]:
    live = client.list_versions(name)
    versions = client.list_versions(name, deleted=True) if deleted else live
    if not versions:  # deleted concurrently
        return {"subject": name, "versions": []}
    latest = client.get_version(name, (live or versions)[-1], deleted=deleted)
    config = client.find_config(name) or {}
    return {
        "subject": name,
        "versions": versions,
        "deleted": sorted(set(versions) - set(live)),
        "id": latest.id,
        "schemaType": latest.schema_type,
        "compatibility": config.get("compatibility", global_level),
    }


def _join_versions(subject: dict[str, Any]) -> str:
    return ", ".join(
        f"{version} (deleted)" if version in subject["deleted"] else str(version) for version in subject["versions"]
    )


def run_show(arguments: argparse.Namespace, client: RegistryAdminClient) -> int:
    if (arguments.subject is None) == (arguments.id is None):
        raise InvalidInput("nothing to show: give either a SUBJECT or --id ID")
    if arguments.id is None:
        schema = client.get_version(arguments.subject, arguments.version or LATEST, deleted=arguments.deleted)
        versions: list[SchemaKey] = [(schema.subject, schema.version)]
    else:
        found = client.find_schema_by_id(arguments.id)
        if found is None:
            raise InvalidInput(f"schema registry {client.url}: no schema has id {arguments.id}")
        schema, versions = found, client.list_versions_of_id(arguments.id)
    if arguments.raw:
        print(schema.schema)
    elif arguments.json:
        print_json(_schema_to_json(schema, versions, by_id=arguments.id is not None))
    else:
        for subject, version in versions:
            print(f"{subject}: version {version}, id {schema.id}, {schema.schema_type}")
        for reference in schema.references:
            print(f"reference {reference.name}: {reference.subject} version {reference.version}")
        print(format_schema(schema))
    return EXIT_OK


def _schema_to_json(schema: SchemaVersion, versions: list[SchemaKey], *, by_id: bool) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(schema)
    fields["schemaType"] = schema.schema_type
    if by_id:
        del fields["subject"], fields["version"]
        fields["versions"] = [{"subject": subject, "version": version} for subject, version in versions]
    return fields


# config


def run_config(arguments: argparse.Namespace, client: RegistryAdminClient) -> int:
    subject = arguments.subject
    if arguments.mode == MODE_READONLY:  # in which the level cannot be changed
        _set_level(client, subject, arguments.compatibility)
        _set_mode(client, subject, arguments)
    else:
        _set_mode(client, subject, arguments)
        _set_level(client, subject, arguments.compatibility)
    config, mode = client.find_config(subject), client.find_mode(subject)
    if arguments.json:
        print_json({"subject": subject, "config": config, "mode": mode})
        return EXIT_OK
    name = "registry" if subject is None else subject
    own = config or {}
    print(f"{name}: compatibility {own.get('compatibility') or f'{_get_inherited_level(client)} (inherited)'}")
    print(f"{name}: mode {mode or f'{client.find_mode() or MODES[0]} (inherited)'}")
    for key, value in own.items():
        if key != "compatibility":
            print(f"{name}: {key} {value}")
    return EXIT_OK


def _set_level(client: RegistryAdminClient, subject: str | None, level: str | None) -> None:
    if level == UNSET:
        client.delete_config(subject)
    elif level is not None:
        client.set_config(subject, {"compatibility": level})


def _set_mode(client: RegistryAdminClient, subject: str | None, arguments: argparse.Namespace) -> None:
    if arguments.mode is None:
        return
    if arguments.mode != UNSET:
        client.set_mode(subject, arguments.mode, force=arguments.force)
    elif subject is None:
        raise InvalidInput("the global mode cannot be unset: use --mode READWRITE")
    else:
        client.delete_mode(subject)


def _get_inherited_level(client: RegistryAdminClient) -> str:
    return str((client.find_config() or {}).get("compatibility", "BACKWARD"))


# delete


def run_delete(arguments: argparse.Namespace, client: RegistryAdminClient) -> int:
    subject, version = arguments.subject, arguments.version
    if version == LATEST:
        version = client.get_version(subject, LATEST).version
    if not arguments.yes and not _confirm(_describe_deletion(subject, version, permanent=arguments.permanent)):
        print("nothing was deleted")
        return EXIT_FAILED
    try:
        deleted = _delete(client, subject, version, permanent=False)
    except RegistryAdminError as error:
        if not arguments.permanent or error.error_code not in (SUBJECT_SOFT_DELETED, VERSION_SOFT_DELETED):
            raise
        deleted = []
    if arguments.permanent:
        deleted = _delete(client, subject, version, permanent=True)
    if arguments.json:
        print_json({"subject": subject, "versions": deleted, "permanent": arguments.permanent})
    else:
        permanently = " permanently" if arguments.permanent else ""
        print(f"deleted {pluralize(len(deleted), 'version')} of {subject}{permanently}: {', '.join(map(str, deleted))}")
    return EXIT_OK


def _delete(client: RegistryAdminClient, subject: str, version: int | None, *, permanent: bool) -> list[int]:
    if version is None:
        return client.delete_subject(subject, permanent=permanent)
    return [client.delete_version(subject, version, permanent=permanent)]


def _describe_deletion(subject: str, version: int | None, *, permanent: bool) -> str:
    what = f"all versions of {subject}" if version is None else f"version {version} of {subject}"
    if permanent:
        return f"This deletes {what} permanently: records with their ids can no longer be decoded."
    return f"This deletes {what}: the ids stay readable, but producers can no longer use them."


def _confirm(warning: str) -> bool:
    """Ask the user to confirm a deletion. Without a terminal, return True."""
    if not sys.stdin.isatty():
        return True
    print(warning)
    return input("Continue? [y/N] ").strip().lower() in ("y", "yes")
