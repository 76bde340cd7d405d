"""What `cluster import` and `restore` have in common: the plan, the question, the progress, the end."""

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

STOPPED = "if it is stopped, run it again: it goes on where it ended; --give-up deletes what it has brought"


class Progress:
    """One line on a terminal, which is overwritten; elsewhere nothing."""

    def __init__(self) -> None:
        self._shown = ""
        self._is_terminal = sys.stderr.isatty()

    def tell(self, text: str) -> None:
        text = escaped(text)  # here, since the carriage return must not be
        if self._is_terminal and text != self._shown:
            print(f"\r{text:<{len(self._shown)}}", end="", file=unescaped(sys.stderr), flush=True)
        self._shown = text

    def end(self) -> None:
        if self._shown and self._is_terminal:
            print(file=sys.stderr)


def checked_backup(folder: Path) -> BackupSource:
    """Opens a backup, which reads all of it. Raises CannotMove, DataDamaged."""
    progress = Progress()
    try:
        return open_backup(folder, progress.tell)
    finally:
        progress.end()


def carried_out(source: Source, cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Plans an import, shows it, asks, and carries it out. Raises CannotMove."""
    progress = Progress()
    importer = Importer(source, cluster, progress.tell, arguments.replication_factor)
    plan = importer.plan
    print(f"{source.name}: {plan}, {plan.security}, producer ids below {plan.producer_ids}")
    if importer.is_finished:
        print("it was imported already")
        return EXIT_OK
    if found := importer.refusals():
        print("\n".join(f"cannot be imported: {each}" for each in found), file=sys.stderr)
        return EXIT_REFUSED
    print("it is gone on with" if importer.is_under_way else "nobody sees any of it before all of it is there")
    print(STOPPED)
    if arguments.dry_run:
        return EXIT_OK
    if not arguments.yes and not ask("go on?"):
        return EXIT_REFUSED
    try:
        _, compared, kept = importer.run()
    finally:
        progress.end()
    assert compared is not None
    print("".join(f"{each}, and stays as it is\n" for each in kept), end="")
    print(
        f"imported and found the same: {counted(compared.partitions, 'partition')}, "
        f"{counted(compared.records, 'record')}, {counted(compared.size_bytes, 'byte')}, "
        f"checksum {compared.checksum:08x}; {counted(len(plan.groups), 'group')}, "
        f"{counted(plan.offset_count, 'committed offset')}, {plan.security}"
    )
    return EXIT_OK


def ask(question: str) -> bool:
    """Asks on a terminal; elsewhere nobody can say yes but by --yes."""
    if not sys.stdin.isatty():
        print(f"{question} Nobody is here to say so: --yes", file=sys.stderr)
        return False
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
