"""The part that `cluster import` and `restore` share: planning, confirmation, progress and execution of an import."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from chronik.client.cluster import Cluster
from chronik.moving.backup.folder import BackupSource, open_backup
from chronik.moving.importing import Importer
from chronik.moving.source import Source
from chronik.shown import escaped, unescaped
from chronik.wording import counted

EXIT_OK, EXIT_REFUSED = 0, 1

INTERRUPT_HINT = (
    "an interrupted import can be continued by running the command again; --give-up deletes the imported data"
)


class Progress:
    """A progress line that is overwritten in place on a terminal; silent otherwise."""

    def __init__(self) -> None:
        self._shown = ""
        self._is_terminal = sys.stderr.isatty()

    def tell(self, text: str) -> None:
        text = escaped(text)  # escaped here, because the carriage return below must not be escaped
        if self._is_terminal and text != self._shown:
            print(f"\r{text:<{len(self._shown)}}", end="", file=unescaped(sys.stderr), flush=True)
        self._shown = text

    def end(self) -> None:
        if self._shown and self._is_terminal:
            print(file=sys.stderr)


def checked_backup(folder: Path) -> BackupSource:
    """Open a backup and verify all of its data; raise CannotMove or DataDamaged if it is unusable."""
    progress = Progress()
    try:
        return open_backup(folder, progress.tell)
    finally:
        progress.end()


def carried_out(source: Source, cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Plan an import, print the plan, ask for confirmation and execute it; return the exit code."""
    progress = Progress()
    importer = Importer(source, cluster, progress.tell, arguments.replication_factor)
    plan = importer.plan
    print(f"{source.name}: {plan}, {plan.security}, producer ids below {plan.producer_ids}")
    if importer.is_finished:
        print("already imported")
        return EXIT_OK
    if problems := importer.refusals():
        print("\n".join(f"import rejected: {each}" for each in problems), file=sys.stderr)
        return EXIT_REFUSED
    print(
        "continuing the unfinished import"
        if importer.is_under_way
        else "topics become visible when the import is complete"
    )
    print(INTERRUPT_HINT)
    if arguments.dry_run:
        return EXIT_OK
    if not arguments.yes and not ask("Continue?"):
        return EXIT_REFUSED
    try:
        _, compared, kept = importer.run()
    finally:
        progress.end()
    assert compared is not None
    print("".join(f"{each}; not changed\n" for each in kept), end="")
    print(
        f"imported and verified: {counted(compared.partitions, 'partition')}, "
        f"{counted(compared.records, 'record')}, {counted(compared.size_bytes, 'byte')}, "
        f"checksum {compared.checksum:08x}; {counted(len(plan.groups), 'group')}, "
        f"{counted(plan.offset_count, 'committed offset')}, {plan.security}"
    )
    return EXIT_OK


def ask(question: str) -> bool:
    """Ask for confirmation on a terminal; without a terminal, print that --yes is required and return False."""
    if not sys.stdin.isatty():
        print(f"{question} stdin is not a terminal: use --yes", file=sys.stderr)
        return False
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
