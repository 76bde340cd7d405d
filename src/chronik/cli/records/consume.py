"""`chronik consume`: print the records of a topic.

Without --follow, it stops at the end of the partitions. With --group, it starts at the group's committed offsets and
commits the offsets of printed records. It does not join the group, so two such commands read the same records.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import islice

from chronik.cli.arguments import (
    InvalidInput,
    add_client_arguments,
    add_registry_argument,
    connect_cluster,
    parse_positive_int,
)
from chronik.cli.records.output_formats import RecordFormatter, add_format_arguments, select_formatter
from chronik.cli.records.record_decoder import RegistryRecordDecoder
from chronik.cli.records.start_positions import (
    Offsets,
    StartAtEarliest,
    StartAtLatest,
    StartPosition,
    parse_start_position,
    resolve_start_offsets,
)
from chronik.cli.records.value_registry import open_value_registry
from chronik.client.cluster import ClusterClient
from chronik.client.consumer import Consumer
from chronik.client.groups import commit_offsets, list_topic_committed_offsets
from chronik.client.offsets import list_latest_offsets
from chronik.client.records import ConsumedRecord, TopicPartition
from chronik.escaping import escape_except_line_breaks
from chronik.wording import pluralize

PROGRESS_DELAY_SECONDS = 1.0
"""Time in seconds after which consuming shows a progress bar.

Short commands show none.
"""

COMMIT_RECORDS_MAX = 1000
"""Maximum number of records between two offset commits. After a crash, up to this many records are printed again."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", help="topic to read")
    parser.add_argument(
        "-f", "--follow", action="store_true", help="wait for new records; start at the end unless a start is given"
    )
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--from-beginning", action="store_true", help="default without --follow and --group")
    start.add_argument(
        "-o",
        "--from",
        "--offset",
        dest="start",
        metavar="WHERE",
        help="start, end, -N (the last N records of each partition), @TIME (ISO 8601 or milliseconds), or an offset",
    )
    parser.add_argument(
        "-p", "--partition", type=int, action="append", metavar="N", help="read only partition N; repeatable"
    )
    parser.add_argument("-n", "--max-records", type=parse_positive_int, metavar="N", help="stop after N records")
    parser.add_argument(
        "-g", "--group", metavar="NAME", help="start at the group's committed offsets, and commit printed records"
    )
    add_format_arguments(parser)
    add_registry_argument(parser)
    add_client_arguments(parser, run)


def run(arguments: argparse.Namespace) -> int:
    start = _parse_start(arguments)
    decoder = RegistryRecordDecoder(arguments, open_value_registry)
    printed = select_formatter(arguments, decoder)
    with closing(decoder), connect_cluster(arguments) as cluster:
        ends = list_latest_offsets(cluster, _select_partitions(cluster, arguments))
        positions = _resolve_start_positions(cluster, arguments, start, ends)
        consumer = Consumer(cluster, positions)
        batches = _poll_batches(consumer) if arguments.follow else _group_into_batches(consumer.read_until(ends))
        with _show_progress(arguments, positions, ends) as tell:
            _consume_records(arguments, cluster, batches, printed, tell)
    return 0


def _consume_records(
    arguments: argparse.Namespace,
    cluster: ClusterClient,
    batches: Iterator[list[ConsumedRecord]],
    printed: RecordFormatter,
    tell: Callable[[int], None],
) -> None:
    for records in _limit_records(batches, arguments.max_records):
        _print_records(records, printed)
        if arguments.group is not None:
            commit_offsets(cluster, arguments.group, _compute_next_offsets(records))
        tell(len(records))


@contextmanager
def _show_progress(arguments: argparse.Namespace, positions: Offsets, ends: Offsets) -> Iterator[Callable[[int], None]]:
    """Show a progress bar while records are consumed.

    This requires that stderr is a terminal and stdout is not.
    """
    if not sys.stderr.isatty() or sys.stdout.isatty() or arguments.follow:
        yield lambda count: None
        return
    from chronik.pipeline.journal.progress_bar import ProgressBar

    total = sum(max(0, ends[each] - positions[each]) for each in ends)
    total = total if arguments.max_records is None else min(total, arguments.max_records)
    with ProgressBar(arguments.topic, total, unit="records", delay_s=PROGRESS_DELAY_SECONDS) as bar:
        yield bar.advance
        bar.update(bar.done, bar.done)  # compacted offsets and control records do not arrive


def _parse_start(arguments: argparse.Namespace) -> StartPosition | None:
    """Return the start position from the arguments, or None if there is none; raise InvalidInput if it is invalid."""
    if arguments.start is not None:
        return parse_start_position(arguments.start)
    return StartAtEarliest() if arguments.from_beginning else None


def _select_partitions(cluster: ClusterClient, arguments: argparse.Namespace) -> list[TopicPartition]:
    existing = cluster.retry(lambda: cluster.partitions(arguments.topic))
    if arguments.partition is None:
        return existing
    wanted = [TopicPartition(arguments.topic, index) for index in dict.fromkeys(arguments.partition)]
    for partition in wanted:
        if partition not in existing:
            count = pluralize(len(existing), "partition")
            raise InvalidInput(f"topic {partition.topic} has {count}, but no partition {partition[1]}")
    return wanted


def _resolve_start_positions(
    cluster: ClusterClient, arguments: argparse.Namespace, start: StartPosition | None, ends: Offsets
) -> Offsets:
    if start is not None:
        return resolve_start_offsets(start, cluster, ends)
    positions = resolve_start_offsets(StartAtLatest() if arguments.follow else StartAtEarliest(), cluster, ends)
    if arguments.group is None:
        return positions
    committed = list_topic_committed_offsets(cluster, arguments.group, arguments.topic)
    return {each: committed[each].offset if each in committed else positions[each] for each in ends}


def _poll_batches(consumer: Consumer) -> Iterator[list[ConsumedRecord]]:
    while True:
        if records := consumer.poll():
            yield records


def _group_into_batches(records: Iterator[ConsumedRecord]) -> Iterator[list[ConsumedRecord]]:
    while batch := list(islice(records, COMMIT_RECORDS_MAX)):
        yield batch


def _limit_records(batches: Iterator[list[ConsumedRecord]], count: int | None) -> Iterator[list[ConsumedRecord]]:
    for batch in batches:
        yield batch[:count]
        if count is not None:
            count -= len(batch)
            if count <= 0:
                return


def _print_records(records: list[ConsumedRecord], printed: RecordFormatter) -> None:
    text = b"".join(map(printed, records))
    if sys.stdout.isatty():  # control characters in records must not reach a terminal
        text = escape_except_line_breaks(text.decode(errors="backslashreplace")).encode()
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()


def _compute_next_offsets(records: list[ConsumedRecord]) -> dict[TopicPartition, int]:
    return {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
