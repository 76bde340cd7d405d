"""`chronik schemas register`, `check` and `diff`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

import msgspec

from chronik.cli.arguments import CommandRunner, InvalidInput, Subparsers, add_json_argument
from chronik.cli.output import print_json
from chronik.cli.schemas.registry_access import add_registry_arguments
from chronik.cli.schemas.schema_diff import compare_schemas, format_unified_diff
from chronik.cli.schemas.schema_files import (
    add_schema_file_arguments,
    detect_type,
    parse_reference,
    parse_version,
    read_schema_file,
    read_text,
)
from chronik.client.registry import LATEST, CompatibilityVerdict, RegistryAdminClient, SchemaVersion
from chronik.errors import ChronikError

EXIT_COMPATIBLE, EXIT_INCOMPATIBLE, EXIT_NO_VERDICT = 0, 1, 2
"""Exit codes of `check` and `diff`: compatible, incompatible, or the check itself failed."""
EXIT_CODES: Final = "exit code 1: incompatible, 2: the check failed"


def add_arguments(actions: Subparsers) -> None:
    register = actions.add_parser("register", help="register a schema as a new version of a subject")
    _add_subject_and_file(register)
    add_schema_file_arguments(register)
    add_json_argument(register)
    add_registry_arguments(register, run_register)

    check = actions.add_parser("check", help=f"check whether a schema is compatible with a subject; {EXIT_CODES}")
    _add_subject_and_file(check)
    check.add_argument(
        "--version",
        type=parse_version,
        metavar="N",
        help="compare with this version, a number or latest (default: the versions that the compatibility level names)",
    )
    add_schema_file_arguments(check)
    add_json_argument(check)
    add_registry_arguments(check, run_check)
    check.set_defaults(run=_without_verdict(check.get_default("run")))

    diff = actions.add_parser("diff", help=f"compare two versions of a subject, or a version and a file; {EXIT_CODES}")
    diff.add_argument("subject", metavar="SUBJECT", help="subject of the schemas")
    diff.add_argument("before", nargs="?", default=None, metavar="BEFORE", help="a version (default: the previous one)")
    diff.add_argument("after", nargs="?", default=None, metavar="AFTER", help="a version or a file (default: latest)")
    add_schema_file_arguments(diff)
    diff.add_argument("-u", "--unified", action="store_true", help="print a unified diff of the texts")
    add_json_argument(diff)
    add_registry_arguments(diff, run_diff)
    diff.set_defaults(run=_without_verdict(diff.get_default("run")))


def _add_subject_and_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subject", metavar="SUBJECT", help="subject, such as orders-value")
    parser.add_argument("file", type=Path, metavar="FILE", help="schema file: .avsc, .json or .proto")


def _without_verdict(run: CommandRunner) -> CommandRunner:
    """Return the command with exit code 2 for errors, because 1 is a verdict."""

    def run_or_report(arguments: argparse.Namespace) -> int:
        try:
            return run(arguments)
        except (ChronikError, OSError) as error:
            if arguments.debug:
                raise
            print(f"chronik: {' '.join(str(error).split())}", file=sys.stderr)
            return EXIT_NO_VERDICT

    return run_or_report


def run_register(arguments: argparse.Namespace, client: RegistryAdminClient) -> int:
    schema = read_schema_file(arguments, client)
    schema_id = client.register(schema, normalize=arguments.normalize)
    registered = client.find_registered(msgspec.structs.replace(schema)) if not arguments.normalize else None
    if registered is None or registered.id != schema_id:  # normalized, or in another notation
        registered = client.get_version(arguments.subject, LATEST)
    if arguments.json:
        print_json({"subject": arguments.subject, "version": registered.version, "id": schema_id})
    else:
        print(f"{arguments.subject}: version {registered.version}, id {schema_id}")
    return 0


def run_check(arguments: argparse.Namespace, client: RegistryAdminClient) -> int:
    schema = read_schema_file(arguments, client)
    level = client.get_effective_level(arguments.subject)
    result = client.check_compatibility(schema, arguments.version, normalize=arguments.normalize)
    if arguments.json:
        print_json(_verdict_to_json(arguments.subject, level, result))
    else:
        print(_format_verdict(arguments.subject, level, result))
    return EXIT_COMPATIBLE if result.is_compatible else EXIT_INCOMPATIBLE


def _format_verdict(subject: str, level: str, result: CompatibilityVerdict) -> str:
    if result.is_compatible:
        return f"compatible with {subject} ({level})"
    return "\n".join((f"incompatible with {subject} ({level})", *(f"  {message}" for message in result.messages)))


def _verdict_to_json(subject: str, level: str, result: CompatibilityVerdict) -> dict[str, object]:
    return {
        "subject": subject,
        "compatibility": level,
        "compatible": result.is_compatible,
        "messages": result.messages,
    }


def run_diff(arguments: argparse.Namespace, client: RegistryAdminClient) -> int:
    before, after, names = _read_both(arguments, client)
    changes = compare_schemas(before, after)
    level = client.get_effective_level(arguments.subject)
    result = client.check_compatibility(after, before.version)
    if arguments.json:
        print_json(
            _verdict_to_json(arguments.subject, level, result)
            | {"before": names[0], "after": names[1], "changes": [change._asdict() for change in changes]}
        )
    else:
        lines = format_unified_diff(before, after, names) if arguments.unified else [*map(str, changes)]
        print("\n".join(lines) or "no differences")
        print(_format_verdict(names[0], level, result))
    return EXIT_COMPATIBLE if result.is_compatible else EXIT_INCOMPATIBLE


def _read_both(
    arguments: argparse.Namespace, client: RegistryAdminClient
) -> tuple[SchemaVersion, SchemaVersion, tuple[str, str]]:
    """Return the schemas to compare and their names."""
    subject = arguments.subject
    versions = client.list_versions(subject)
    if not versions:
        raise InvalidInput(f"subject {subject} does not exist; list the subjects with chronik schemas list")
    before, after = arguments.before, arguments.after
    if after is None and before is not None and not _is_version(before):
        before, after = LATEST, before
    if before is None:
        before = str(versions[-2] if len(versions) > 1 else versions[-1])
    if not _is_version(before):
        raise InvalidInput(f"{before!r}: expected a version such as 1, or latest; only AFTER can be a file")
    older = client.get_version(subject, before)
    if after is None or _is_version(after):
        newer = client.get_version(subject, after or LATEST)
        name = f"{subject} version {newer.version}"
    else:
        path = Path(after)
        references = [parse_reference(text, client) for text in arguments.reference]
        newer = SchemaVersion(subject, 0, 0, read_text(path), arguments.type or detect_type(path), references)
        name = str(path)
    return older, newer, (f"{subject} version {older.version}", name)


def _is_version(text: str) -> bool:
    return text == LATEST or text.isdigit()
