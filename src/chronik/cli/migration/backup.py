"""`chronik backup`: copy a running cluster to a directory; further runs are incremental."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from chronik.cli.arguments import add_client_arguments, connect_cluster
from chronik.cli.migration.import_runner import EXIT_OK, ProgressLine, open_verified_backup
from chronik.migration.backup.backup_writer import BackupWriter, create_backup_point
from chronik.migration.dry_run import dry_run_restore
from chronik.migration.import_plan import build_import_plan
from chronik.wording import pluralize


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
    progress = ProgressLine()
    with BackupWriter(arguments.folder) as backup, connect_cluster(arguments) as cluster:
        moment = create_backup_point(cluster)
        backup.check_same_cluster(moment.image)
        extent = sum(ends.end - ends.start for ends in moment.ends.values())
        previous = "" if backup.before is None else f"; previous run at index {backup.before.index}"
        print(
            f"cluster {moment.image.cluster_id} at index {moment.image.applied_index}: "
            f"{pluralize(len(moment.ends), 'partition')} with {pluralize(extent, 'offset')}{previous}"
        )
        if arguments.dry_run:
            return EXIT_OK
        try:
            taken = backup.run(cluster, moment, time.time_ns() // 1_000_000, progress.update)
        finally:
            progress.close()
    for name in taken.topics_gone:
        print(f"topic {name} was deleted during the backup and is not included")
    print(
        f"run {taken.manifest.run}: {pluralize(len(taken.manifest.partitions), 'partition')}, "
        f"{taken.partitions_kept:,} of them updated incrementally, {pluralize(taken.bytes_copied, 'byte')} copied"
    )
    return EXIT_OK


def run_check(arguments: argparse.Namespace) -> int:
    source = open_verified_backup(arguments.folder)
    try:
        plan = build_import_plan(source)
        dry_run_restore(source, plan)
        registry = "" if plan.registry.is_empty else f", {plan.registry}"
        print(
            f"{source.name} is intact and can be restored: "
            f"run {source.manifest.run}, index {source.manifest.index}, {plan}{registry}"
        )
    finally:
        source.close()
    return EXIT_OK
