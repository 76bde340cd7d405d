"""The part that `cluster import` and `restore` share: planning, confirmation, progress and execution of an import."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from chronik.client.cluster import ClusterClient
from chronik.escaping import escape, raw_stream
from chronik.migration.backup.backup_source import BackupSource, open_backup
from chronik.migration.importer import Importer
from chronik.migration.source import ImportSource
from chronik.wording import pluralize

EXIT_OK, EXIT_REFUSED = 0, 1

INTERRUPT_HINT = (
    "an interrupted import can be continued by running the command again; --give-up deletes the imported data"
)


class ProgressLine:
    """A progress line that is updated in place on a terminal and not shown otherwise."""

    def __init__(self) -> None:
        self._shown = ""
        self._is_terminal = sys.stderr.isatty()

    def update(self, text: str) -> None:
        text = escape(text)  # escaped here, because the carriage return below must not be escaped
        if self._is_terminal and text != self._shown:
            print(f"\r{text:<{len(self._shown)}}", end="", file=raw_stream(sys.stderr), flush=True)
        self._shown = text

    def close(self) -> None:
        if self._shown and self._is_terminal:
            print(file=sys.stderr)


def open_verified_backup(folder: Path) -> BackupSource:
    """Open a backup and verify all of its data; raise MigrationError or DamagedDataError if it is unusable."""
    progress = ProgressLine()
    try:
        return open_backup(folder, progress.update)
    finally:
        progress.close()


def execute_import(source: ImportSource, cluster: ClusterClient, arguments: argparse.Namespace) -> int:
    """Plan an import, and execute it if the user confirms the plan; return the exit code."""
    progress = ProgressLine()
    importer = Importer(source, cluster, progress.update, arguments.replication_factor)
    plan = importer.plan
    print(f"{source.name}: {plan}, {plan.other_metadata}, producer ids below {plan.producer_ids}")
    if importer.is_finished:
        print("already imported")
        return EXIT_OK
    if problems := importer.find_obstacles():
        print("\n".join(f"import rejected: {each}" for each in problems), file=sys.stderr)
        return EXIT_REFUSED
    print(
        "continuing the unfinished import"
        if importer.is_in_progress
        else "topics become visible when the import is complete"
    )
    print(INTERRUPT_HINT)
    if arguments.dry_run:
        return EXIT_OK
    if not arguments.yes and not confirm("Continue?"):
        return EXIT_REFUSED
    try:
        _, compared, kept = importer.run()
    finally:
        progress.close()
    assert compared is not None
    print("".join(f"{each}; not changed\n" for each in kept), end="")
    print(
        f"imported and verified: {pluralize(compared.partitions, 'partition')}, "
        f"{pluralize(compared.records, 'record')}, {pluralize(compared.size_bytes, 'byte')}, "
        f"checksum {compared.checksum:08x}; {pluralize(len(plan.groups), 'group')}, "
        f"{pluralize(plan.offset_count, 'committed offset')}, {plan.other_metadata}"
    )
    return EXIT_OK


def confirm(question: str) -> bool:
    """Ask the user for confirmation.

    Without a terminal, print that --yes is required and return False.
    """
    if not sys.stdin.isatty():
        print(f"{question} stdin is not a terminal: use --yes", file=sys.stderr)
        return False
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
