"""`chronik backup`: copy a running cluster to a directory; further runs are incremental."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from chronik.cli.arguments import add_client_arguments, cluster_of
from chronik.cli.moving.moves import EXIT_OK, Progress, checked_backup
from chronik.moving.backup.moment import moment_of
from chronik.moving.backup.taking import Backup
from chronik.moving.plan import plan_of
from chronik.moving.rehearsal import rehearse
from chronik.wording import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="directory of the backup, existing or new")
    parser.add_argument("--dry-run", action="store_true", help="show what would be copied without copying it")
    parser.add_argument(
        "--check", action="store_true", help="only verify the checksums of the backup and that it can be restored"
    )
    add_client_arguments(parser, run_backup)


def run_backup(arguments: argparse.Namespace) -> int:
    if arguments.check:
        return run_check(arguments)
    progress = Progress()
    with Backup(arguments.folder) as backup, cluster_of(arguments) as cluster:
        moment = moment_of(cluster)
        backup.refuse_other(moment.image)
        extent = sum(ends.end - ends.start for ends in moment.ends.values())
        previous = "" if backup.before is None else f"; previous run at index {backup.before.index}"
        print(
            f"cluster {moment.image.cluster_id} at index {moment.image.applied_index}: "
            f"{counted(len(moment.ends), 'partition')} with {counted(extent, 'offset')}{previous}"
        )
        if arguments.dry_run:
            return EXIT_OK
        try:
            taken = backup.take(cluster, moment, time.time_ns() // 1_000_000, progress.tell)
        finally:
            progress.end()
    for name in taken.topics_gone:
        print(f"topic {name} was deleted during the backup and is not included")
    print(
        f"run {taken.manifest.run}: {counted(len(taken.manifest.partitions), 'partition')}, "
        f"{taken.partitions_kept:,} of them updated incrementally, {counted(taken.bytes_copied, 'byte')} copied"
    )
    return EXIT_OK


def run_check(arguments: argparse.Namespace) -> int:
    source = checked_backup(arguments.folder)
    try:
        plan = plan_of(source)
        rehearse(source, plan)
        print(
            f"{source.name} is intact and can be restored: "
            f"run {source.manifest.run}, index {source.manifest.index}, {plan}"
        )
    finally:
        source.close()
    return EXIT_OK
