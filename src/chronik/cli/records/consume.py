"""`chronik consume`: the records of a topic on stdout, a line each, or as `printed` has it.

Without --follow it prints what there is and ends. With --group it goes on where the group has committed, and commits
what it has printed; it is no member of the group, so two such commands read the same records.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice

from chronik.cli.arguments import WrongInput, add_client_arguments, cluster_of, positive
from chronik.cli.records.printed import Printed, add_format_arguments, printed_as
from chronik.cli.records.starts import Beginning, End, Offsets, Start, offsets_of, parse_start
from chronik.client.cluster import Cluster
from chronik.client.consumer import Consumer
from chronik.client.groups import commit_offsets, committed_offsets_of
from chronik.client.offsets import latest_offsets
from chronik.client.records import ConsumedRecord, TopicPartition
from chronik.shown import escaped_lines
from chronik.wording import counted

SHOWN_AFTER_SECONDS = 1.0
"""What is done sooner shows no progress."""

COMMIT_RECORDS_MAX = 1000
"""The group's offsets are committed after so many records; after a crash, at most so many are printed again."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("-f", "--follow", action="store_true", help="wait for new records; with no start, only those")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--from-beginning", action="store_true", help="the default without --follow and --group")
    start.add_argument(
        "-o",
        "--from",
        "--offset",
        dest="start",
        metavar="WHERE",
        help="start, end, -N (the last N of each partition), @TIME (ISO 8601, or milliseconds) or an offset",
    )
    parser.add_argument("-p", "--partition", type=int, action="append", metavar="N", help="only this one; repeatable")
    parser.add_argument("-n", "--max-records", type=positive, metavar="N", help="end after N records")
    parser.add_argument("-g", "--group", metavar="NAME", help="go on where the group has committed, and commit")
    add_format_arguments(parser)
    add_client_arguments(parser, run)


def run(arguments: argparse.Namespace) -> int:
    start, printed = _start(arguments), printed_as(arguments)
    with cluster_of(arguments) as cluster:
        ends = latest_offsets(cluster, _partitions(cluster, arguments))
        positions = _positions(cluster, arguments, start, ends)
        consumer = Consumer(cluster, positions)
        batches = _follow(consumer) if arguments.follow else _in_batches(consumer.read_until(ends))
        with _progress(arguments, positions, ends) as tell:
            _consume(arguments, cluster, batches, printed, tell)
    return 0


def _consume(
    arguments: argparse.Namespace,
    cluster: Cluster,
    batches: Iterator[list[ConsumedRecord]],
    printed: Printed,
    tell: Callable[[int], None],
) -> None:
    for records in _at_most(batches, arguments.max_records):
        _print(records, printed)
        if arguments.group is not None:
            commit_offsets(cluster, arguments.group, _after(records))
        tell(len(records))


@contextmanager
def _progress(arguments: argparse.Namespace, positions: Offsets, ends: Offsets) -> Iterator[Callable[[int], None]]:
    """Shows it where somebody looks, and records go elsewhere. Offsets are counted: some may have no record."""
    if not sys.stderr.isatty() or sys.stdout.isatty() or arguments.follow:
        yield lambda count: None
        return
    from chronik.pipeline.journal.bars import Bar

    total = sum(max(0, ends[each] - positions[each]) for each in ends)
    total = total if arguments.max_records is None else min(total, arguments.max_records)
    with Bar(arguments.topic, total, unit="records", hidden_for_s=SHOWN_AFTER_SECONDS) as bar:
        yield bar.advance
        bar.reach(bar.done, bar.done)  # what compaction and markers have taken does not come any more


def _start(arguments: argparse.Namespace) -> Start | None:
    """Returns what the user has said, None if nothing. Raises WrongInput."""
    if arguments.start is not None:
        return parse_start(arguments.start)
    return Beginning() if arguments.from_beginning else None


def _partitions(cluster: Cluster, arguments: argparse.Namespace) -> list[TopicPartition]:
    existing = cluster.retrying(lambda: cluster.partitions(arguments.topic))
    if arguments.partition is None:
        return existing
    wanted = [TopicPartition(arguments.topic, index) for index in dict.fromkeys(arguments.partition)]
    for partition in wanted:
        if partition not in existing:
            count = counted(len(existing), "partition")
            raise WrongInput(f"topic {partition.topic} has {count}, and no partition {partition[1]}")
    return wanted


def _positions(cluster: Cluster, arguments: argparse.Namespace, start: Start | None, ends: Offsets) -> Offsets:
    if start is not None:
        return offsets_of(start, cluster, ends)
    positions = offsets_of(End() if arguments.follow else Beginning(), cluster, ends)
    if arguments.group is None:
        return positions
    committed = committed_offsets_of(cluster, arguments.group, arguments.topic)
    return {each: committed[each].offset if each in committed else positions[each] for each in ends}


def _follow(consumer: Consumer) -> Iterator[list[ConsumedRecord]]:
    while True:
        if records := consumer.poll():
            yield records


def _in_batches(records: Iterator[ConsumedRecord]) -> Iterator[list[ConsumedRecord]]:
    while batch := list(islice(records, COMMIT_RECORDS_MAX)):
        yield batch


def _at_most(batches: Iterator[list[ConsumedRecord]], count: int | None) -> Iterator[list[ConsumedRecord]]:
    for batch in batches:
        yield batch[:count]
        if count is not None:
            count -= len(batch)
            if count <= 0:
                return


def _print(records: list[ConsumedRecord], printed: Printed) -> None:
    text = b"".join(map(printed, records))
    if sys.stdout.isatty():  # anybody writes records, and a terminal would obey them; a program gets every byte
        text = escaped_lines(text.decode(errors="backslashreplace")).encode()
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()


def _after(records: list[ConsumedRecord]) -> dict[TopicPartition, int]:
    return {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
