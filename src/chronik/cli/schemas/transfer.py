"""`chronik schemas export` and `import`."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

from chronik.cli.arguments import InvalidInput, Subparsers, add_json_argument
from chronik.cli.migration.import_runner import ProgressLine
from chronik.cli.output import print_json
from chronik.cli.schemas.registry_access import add_registry_arguments, open_other_registry
from chronik.client.registry import ALL_CONTEXTS, RegistryAdminClient
from chronik.escaping import raw_stream
from chronik.migration.schemas.exporter import read_registry
from chronik.migration.schemas.importer import SchemaImporter
from chronik.migration.schemas.registry_export import RegistryExport, read_export, write_export, write_lines
from chronik.wording import pluralize

STDOUT: Final = "-"
CONFLICTS_SHOWN_MAX: Final = 20
EXIT_OK, EXIT_CONFLICTS = 0, 1


def add_arguments(actions: Subparsers) -> None:
    export = actions.add_parser("export", help="write all subjects, versions, configs and modes to a file (JSON Lines)")
    export.add_argument("file", metavar="FILE", help="file to write, or - for stdout")
    _add_prefix_argument(export)
    add_registry_arguments(export, run_export)

    importing = actions.add_parser(
        "import",
        help="import an exported file or another registry, with ids and versions kept; run it again to continue",
    )
    importing.add_argument("file", nargs="?", type=Path, metavar="FILE", help="file of chronik schemas export")
    importing.add_argument(
        "--from", dest="source", metavar="URL", help="import from this registry (Confluent's, Karapace's or Chronik's)"
    )
    importing.add_argument(
        "--from-config", type=Path, metavar="FILE", help="client config file with the credentials for --from"
    )
    _add_prefix_argument(importing, "with --from: ")
    importing.add_argument(
        "--keep-global-config",
        action="store_true",
        help="do not change the compatibility level of the registry and of contexts, only those of subjects",
    )
    importing.add_argument("--dry-run", action="store_true", help="only report what would be imported, and conflicts")
    add_json_argument(importing)
    add_registry_arguments(importing, run_import)


def _add_prefix_argument(parser: argparse.ArgumentParser, condition: str = "") -> None:
    parser.add_argument(
        "--prefix",
        default=ALL_CONTEXTS,
        metavar="PREFIX",
        help=f"{condition}only subjects that start with PREFIX, such as orders or :.CONTEXT: (default: all)",
    )


def run_export(arguments: argparse.Namespace, client: RegistryAdminClient) -> int:
    with closing(ProgressLine()) as progress:
        export = read_registry(client, progress.update, prefix=arguments.prefix)
    if arguments.file == STDOUT:
        write_lines(export, raw_stream(sys.stdout))
        return EXIT_OK
    write_export(export, Path(arguments.file))
    print(f"exported {_describe_export(export)} to {arguments.file}")
    return EXIT_OK


def run_import(arguments: argparse.Namespace, client: RegistryAdminClient) -> int:
    if (arguments.file is None) == (arguments.source is None):
        raise InvalidInput("nothing to import: give either a FILE or --from URL")
    with closing(ProgressLine()) as progress:
        export = _read_export(arguments, client, progress)
        importer = SchemaImporter(export, client, progress.update, with_global=not arguments.keep_global_config)
        if arguments.dry_run:
            return _report_plan(importer, export, client.url, as_json=arguments.json)
        result = importer.run()
    if arguments.json:
        print_json({"registry": client.url, "verified": True} | result._asdict())
    else:
        print(
            f"imported and verified: {_describe_export(export)}; {result.registered:,} registered, "
            f"{result.present:,} were present; {pluralize(result.configs, 'config')} and "
            f"{pluralize(result.modes, 'mode')} set"
        )
    return EXIT_OK


def _read_export(arguments: argparse.Namespace, client: RegistryAdminClient, progress: ProgressLine) -> RegistryExport:
    """Return the content of the file or registry to import."""
    if arguments.source is None:
        return read_export(arguments.file)
    with open_other_registry(arguments.source, arguments.from_config, arguments.timeout) as source:
        if source.url == client.url:
            raise InvalidInput(f"--from {source.url} is the registry to import into: set --registry to another one")
        return read_registry(source, progress.update, prefix=arguments.prefix)


def _report_plan(importer: SchemaImporter, export: RegistryExport, target: str, *, as_json: bool) -> int:
    conflicts = importer.find_conflicts()
    if as_json:
        print_json({"registry": target, "missing": len(importer.missing), "conflicts": conflicts})
    else:
        print(f"{_describe_export(export)}; {len(importer.missing):,} to be registered at {target}")
        for conflict in conflicts[:CONFLICTS_SHOWN_MAX]:
            print(f"conflict: {conflict}")
        if len(conflicts) > CONFLICTS_SHOWN_MAX:
            print(f"{pluralize(len(conflicts) - CONFLICTS_SHOWN_MAX, 'more conflict')}")
    return EXIT_CONFLICTS if conflicts else EXIT_OK


def _describe_export(export: RegistryExport) -> str:
    versions = pluralize(len(export.schemas), "version")
    return f"{versions} of {pluralize(len(export.subjects), 'subject')}"
