"""`chronik pipeline compact`, `replay` and `dlq`: maintenance of existing tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from chronik.cli.arguments import (
    add_client_arguments,
    add_debug_argument,
    add_json_argument,
    add_registry_argument,
    parse_bootstrap_access,
    parse_positive_int,
)
from chronik.cli.output import format_table, print_json
from chronik.cli.pipeline.registry_argument import parse_registry_argument
from chronik.cli.pipeline.table_location import S3_HELP, add_table_root_arguments, parse_storage_options
from chronik.protocol.compression import Codec
from chronik.wording import pluralize

if TYPE_CHECKING:
    from chronik.pipeline.maintenance.dead_letters import DeadLetterRecord
    from chronik.pipeline.maintenance.replay import RemainingRanges, ReplayBound

EXIT_OK = 0

DEFAULT_LIMIT = 50
VALUE_CHARACTERS_MAX = 60

Offsets = int | dict[int, int]


def add_arguments(actions: Any) -> None:
    _add_compact_arguments(actions.add_parser("compact", help="merge small files of tables, and remove unused files"))
    _add_replay_arguments(actions.add_parser("replay", help="produce the rows of a table to a topic"))
    letters = actions.add_parser("dlq", help="list and retry dead-letter records (records that could not be decoded)")
    letters_actions = letters.add_subparsers(metavar="ACTION", required=True)
    _add_list_arguments(letters_actions.add_parser("list", help="list unresolved dead-letter records"))
    _add_retry_arguments(letters_actions.add_parser("retry", help="decode dead-letter records again"))


def _add_table_arguments(parser: argparse.ArgumentParser, *, topics: bool = True) -> None:
    add_table_root_arguments(parser, required=True, help=f"directory of the tables, {S3_HELP}")
    if topics:
        parser.add_argument("--topics", type=_parse_names, metavar="A,B", help="topics (default: all)")


def _add_master_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--master", metavar="URL", help="spark://HOST:PORT, sc://HOST:PORT, local[N]; also CHRONIK_SPARK_MASTER"
        " (default: this machine)",
    )  # fmt: skip


def _parse_names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise argparse.ArgumentTypeError("no topic given")
    return names


# compact


def _add_compact_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run_compact)
    _add_table_arguments(parser)
    parser.add_argument("--since", type=_parse_date, metavar="DATE", help="compact only days from DATE on")
    order = parser.add_mutually_exclusive_group()
    order.add_argument("--sort-by", type=_parse_names, metavar="A,B", help="also sort the rows of all files by columns")
    order.add_argument(
        "--z-order-by", type=_parse_names, metavar="A,B", help="also order the rows of all files along a Z-order curve"
    )
    parser.add_argument("--vacuum", action="store_true", help="also remove files that no retained version needs")
    parser.add_argument(
        "--retention-hours",
        type=_parse_hours,
        metavar="H",
        help="retention of old versions for --vacuum (default: 168)",
    )
    parser.add_argument(
        "--pipeline-stopped", action="store_true", help="assert that no pipeline writes to the tables: H may be below 1"
    )
    _add_master_argument(parser)
    add_json_argument(parser)
    add_debug_argument(parser)


def _parse_date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a date such as 2024-05-31") from None


def _parse_hours(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r}: expected an integer number of hours")
    return int(text)


def run_compact(arguments: argparse.Namespace) -> int:
    from chronik.pipeline.spark.environment_checks import require_packages

    require_packages("pyspark", "deltalake", "pyarrow")
    from chronik.pipeline.journal.progress_bar import ProgressBar
    from chronik.pipeline.maintenance.compaction import VacuumOptions, compact_tables
    from chronik.pipeline.spark.tasks import LazySparkTaskRunner
    from chronik.pipeline.table_maintenance.merges import DEFAULT_KEEP_HOURS
    from chronik.pipeline.table_maintenance.row_order import RowOrder
    from chronik.pipeline.tables.storage import to_absolute_root

    columns = arguments.sort_by or arguments.z_order_by
    hours = DEFAULT_KEEP_HOURS if arguments.retention_hours is None else arguments.retention_hours
    with LazySparkTaskRunner(arguments.master) as tasks, ProgressBar("compact", unit="bytes") as bar:
        compacted_tables = compact_tables(
            to_absolute_root(arguments.table_root),
            arguments.topics,
            tasks=tasks,
            since=arguments.since,
            order=RowOrder(tuple(columns), arguments.z_order_by is not None) if columns else None,
            vacuum_options=VacuumOptions(hours, arguments.pipeline_stopped) if arguments.vacuum else None,
            progress=bar.update,
            storage_options=parse_storage_options(arguments),
        )
    if arguments.json:
        print_json(
            [{"table": each.name, **asdict(each.compacted), "vacuumed": each.vacuumed} for each in compacted_tables]
        )
        return EXIT_OK
    rows = [
        (each.name, done.files_removed, done.files_added, done.bytes_before, done.bytes_after, each.vacuumed)
        for each in compacted_tables
        for done in [each.compacted]
    ]
    print(format_table(("TABLE", "FILES-JOINED", "INTO", "BYTES-BEFORE", "BYTES-AFTER", "VACUUMED"), rows))
    return EXIT_OK


# replay


def _add_replay_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_arguments(parser, run_replay)
    parser.description = "Produce the rows of a table to a topic, in order, at least once."
    parser.add_argument("--topic", required=True, metavar="TOPIC", help="topic whose table is read")
    parser.add_argument("--to-topic", required=True, metavar="TOPIC", help="topic to produce to")
    _add_table_arguments(parser, topics=False)
    for side, what in (("from", "first offset"), ("to", "end offset (exclusive)")):
        bound = parser.add_mutually_exclusive_group()
        bound.add_argument(
            f"--{side}-offset",
            type=_parse_offsets,
            metavar="N|P:N,…",
            help=f"{what}, for all partitions or per partition",
        )
        bound.add_argument(
            f"--{side}-time", type=_parse_time, metavar="ISO", help="alternatively, a time (UTC if it has no time zone)"
        )
    parser.add_argument("--create", action="store_true", help="create the topic if necessary, with as many partitions")
    parser.add_argument("--by-key", action="store_true", help="choose partitions by key instead of keeping them")
    parser.add_argument(
        "-z",
        "--codec",
        choices=[codec.name.lower() for codec in Codec],
        default="none",
        help="compression (default: %(default)s)",
    )
    add_registry_argument(parser)
    _add_master_argument(parser)
    add_json_argument(parser)


def _parse_offsets(text: str) -> Offsets:
    """Parse an offset for all partitions (`17`), or offsets per partition (`0:17,3:20`)."""
    if text.isdigit():
        return int(text)
    pairs = [part.strip().partition(":")[::2] for part in text.split(",")]
    if not all(partition.isdigit() and offset.isdigit() for partition, offset in pairs):
        raise argparse.ArgumentTypeError(f"{text!r}: expected an offset, or PARTITION:OFFSET,PARTITION:OFFSET")
    return {int(partition): int(offset) for partition, offset in pairs}


def _parse_time(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a time such as 2024-05-31T12:00:00") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def _build_replay_bound(offset: Offsets | None, time: datetime | None) -> ReplayBound:
    from chronik.pipeline.maintenance.replay import ReplayBound

    everywhere = offset if isinstance(offset, int) else None
    return ReplayBound(everywhere, offset if isinstance(offset, Mapping) else None, time)


def run_replay(arguments: argparse.Namespace) -> int:
    from chronik.pipeline.spark.environment_checks import require_packages

    require_packages("pyspark", "deltalake", "pyarrow")
    from chronik.pipeline.journal.progress_bar import ProgressBar
    from chronik.pipeline.maintenance.dead_letters import list_dead_letters
    from chronik.pipeline.maintenance.replay import format_header_names_warning, replay
    from chronik.pipeline.spark.tasks import LazySparkTaskRunner
    from chronik.pipeline.tables.storage import to_absolute_root

    topic, target, root = arguments.topic, arguments.to_topic, to_absolute_root(arguments.table_root)
    options = parse_storage_options(arguments)
    left: RemainingRanges | None = None

    def progress(records: int, rest: RemainingRanges) -> None:
        nonlocal left
        left = rest
        bar.update(records, records + rest.offsets)
        if rest.ranges and not sys.stderr.isatty():
            print(f"{pluralize(records, 'record')} written to {target}; remaining: {rest}", file=sys.stderr, flush=True)

    with LazySparkTaskRunner(arguments.master) as tasks, ProgressBar(f"{topic} -> {target}", unit="offsets") as bar:
        try:
            done = replay(
                topic,
                target,
                bootstrap=parse_bootstrap_access(arguments),
                table_root=root,
                start=_build_replay_bound(arguments.from_offset, arguments.from_time),
                end=_build_replay_bound(arguments.to_offset, arguments.to_time),
                create=arguments.create,
                by_key=arguments.by_key,
                codec=Codec[arguments.codec.upper()],
                tasks=tasks,
                progress=progress,
                storage_options=options,
                registry=parse_registry_argument(arguments),
            )
        except KeyboardInterrupt:
            if left is not None:
                print(f"\nremaining: {left}", file=sys.stderr)
            raise
    letters = list_dead_letters(root, [topic], limit=0, storage_options=options).count
    if arguments.json:
        print_json({"topic": topic, "to_topic": target, **asdict(done), "dead_letters": letters})
        return EXIT_OK
    where = "in their original partitions" if done.partitions_kept else "in partitions chosen by key"
    print(f"{pluralize(done.records, 'record')} of {topic} written to {target}, {where}")
    if done.names_replaced:
        print(format_header_names_warning(done))
    if letters:
        print(f"{pluralize(letters, 'dead-letter record')} of {topic} not in its table and not replayed")
    return EXIT_OK


# dlq


def _add_list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run_list)
    _add_table_arguments(parser)
    parser.add_argument(
        "--limit",
        type=parse_positive_int,
        default=DEFAULT_LIMIT,
        metavar="N",
        help="list the first N (default: %(default)s)",
    )
    add_json_argument(parser)
    add_debug_argument(parser)


def run_list(arguments: argparse.Namespace) -> int:
    from chronik.pipeline.spark.environment_checks import require_packages

    require_packages("deltalake", "pyarrow")
    from chronik.pipeline.maintenance.dead_letters import list_dead_letters

    listing = list_dead_letters(
        arguments.table_root,
        arguments.topics,
        limit=arguments.limit,
        storage_options=parse_storage_options(arguments),
    )
    if arguments.json:
        print_json({"count": listing.count, "letters": [_dead_letter_to_json(letter) for letter in listing.letters]})
        return EXIT_OK
    if not listing.count:
        print("no dead-letter records")
        return EXIT_OK
    rows = [
        (each.topic, each.partition, each.offset, _format_time(each.timestamp_ms), each.error, _format_value(each))
        for each in listing.letters
    ]
    print(format_table(("TOPIC", "PARTITION", "OFFSET", "TIME", "ERROR", "VALUE"), rows))
    if listing.count > len(rows):
        print(f"… and {listing.count - len(rows):,} more (--limit)")
    return EXIT_OK


def _dead_letter_to_json(letter: DeadLetterRecord) -> dict[str, Any]:
    return asdict(letter) | {"value": letter.value.decode(errors="backslashreplace")}


def _format_time(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):  # record timestamps may be out of range
        return f"{timestamp_ms} ms"


def _format_value(letter: DeadLetterRecord) -> str:
    text = letter.value.decode(errors="backslashreplace")
    text = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text[:VALUE_CHARACTERS_MAX])
    return text if letter.value_bytes <= VALUE_CHARACTERS_MAX else f"{text}… ({pluralize(letter.value_bytes, 'byte')})"


def _add_retry_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run_retry)
    _add_table_arguments(parser)
    add_registry_argument(parser)
    _add_master_argument(parser)
    add_json_argument(parser)
    add_debug_argument(parser)


def run_retry(arguments: argparse.Namespace) -> int:
    from chronik.pipeline.spark.environment_checks import require_packages

    require_packages("pyspark", "deltalake", "pyarrow")
    from chronik.pipeline.journal.progress_bar import ProgressBar
    from chronik.pipeline.maintenance.dead_letters import retry_dead_letters
    from chronik.pipeline.spark.tasks import LazySparkTaskRunner
    from chronik.pipeline.tables.storage import to_absolute_root

    with LazySparkTaskRunner(arguments.master) as tasks, ProgressBar("retry", unit="files") as bar:
        done = retry_dead_letters(
            to_absolute_root(arguments.table_root),
            arguments.topics,
            tasks=tasks,
            progress=bar.update,
            storage_options=parse_storage_options(arguments),
            registry=parse_registry_argument(arguments),
        )
    if arguments.json:
        print_json([asdict(each) for each in done])
    elif not done:
        print("no dead-letter records")
    else:
        rows = [(each.topic, each.decoded, each.failing, each.waiting) for each in done]
        print(format_table(("TOPIC", "DECODED", "FAILING", "WAITING"), rows))
    return EXIT_OK
