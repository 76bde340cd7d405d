"""`chronik consume`: the records of a topic on stdout, a line each.

Without --follow it prints what there is and ends. With --group it goes on where the group has committed, and commits
what it has printed; it is no member of the group, so two such commands read the same records.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import islice

from chronik.cli.arguments import WrongInput, add_client_arguments, cluster_of, positive
from chronik.cli.record_json import record_to_json
from chronik.client.cluster import Cluster
from chronik.client.consumer import Consumer
from chronik.client.groups import commit_offsets, committed_offsets_of
from chronik.client.offsets import earliest_offsets, latest_offsets
from chronik.client.records import ConsumedRecord, TopicPartition
from chronik.shown import escaped_lines

COMMIT_RECORDS_MAX = 1000
"""The group's offsets are committed after so many records; after a crash, at most so many are printed again."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("-f", "--follow", action="store_true", help="wait for new records; with no start, only those")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--from-beginning", action="store_true", help="the default without --follow and --group")
    start.add_argument("-o", "--offset", metavar="N", help="from this offset on; earliest, latest, or -N: the last N")
    parser.add_argument("-p", "--partition", type=int, action="append", metavar="N", help="only this one; repeatable")
    parser.add_argument("-n", "--max-records", type=positive, metavar="N", help="end after N records")
    parser.add_argument("-g", "--group", metavar="NAME", help="go on where the group has committed, and commit")
    parser.add_argument("-k", "--key-separator", metavar="TEXT", help="print the key and TEXT before the value")
    parser.add_argument("--json", action="store_true", help="print everything about a record as JSON")
    add_client_arguments(parser, run)


def run(arguments: argparse.Namespace) -> int:
    with cluster_of(arguments) as cluster:
        partitions = _partitions(cluster, arguments)
        ends = latest_offsets(cluster, partitions)
        consumer = Consumer(cluster, _start(cluster, arguments, partitions, ends))
        batches = _follow(consumer) if arguments.follow else _in_batches(consumer.read_until(ends))
        for records in _at_most(batches, arguments.max_records):
            _print(records, arguments)
            if arguments.group is not None:
                commit_offsets(cluster, arguments.group, _after(records))
    return 0


def _partitions(cluster: Cluster, arguments: argparse.Namespace) -> list[TopicPartition]:
    existing = cluster.retrying(lambda: cluster.partitions(arguments.topic))
    if arguments.partition is None:
        return existing
    wanted = [TopicPartition(arguments.topic, index) for index in dict.fromkeys(arguments.partition)]
    for partition in wanted:
        if partition not in existing:
            raise WrongInput(f"topic {partition.topic} has {len(existing)} partitions, and no partition {partition[1]}")
    return wanted


def _start(
    cluster: Cluster, arguments: argparse.Namespace, partitions: list[TopicPartition], ends: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    if arguments.offset is not None:
        return _explicit_start(cluster, arguments.offset, partitions, ends)
    from_end = arguments.follow and not arguments.from_beginning
    start = ends if from_end else earliest_offsets(cluster, partitions)
    if arguments.group is not None and not arguments.from_beginning:
        committed = committed_offsets_of(cluster, arguments.group, arguments.topic)
        return {each: committed[each].offset if each in committed else start[each] for each in partitions}
    return start


def _explicit_start(
    cluster: Cluster, offset: str, partitions: list[TopicPartition], ends: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    if offset == "latest":
        return ends
    starts = earliest_offsets(cluster, partitions)
    if offset == "earliest":
        return starts
    try:
        number = int(offset)
    except ValueError:
        raise WrongInput(f"--offset {offset!r}: expected a number, earliest or latest") from None
    if number >= 0:
        return dict.fromkeys(partitions, number)
    return {each: max(starts[each], ends[each] + number) for each in partitions}


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


def _print(records: list[ConsumedRecord], arguments: argparse.Namespace) -> None:
    lines = [record_to_json(record) if arguments.json else _line(record, arguments.key_separator) for record in records]
    text = b"\n".join(lines) + b"\n"
    if sys.stdout.isatty():  # anybody writes records, and a terminal would obey them; a program gets every byte
        text = escaped_lines(text.decode(errors="backslashreplace")).encode()
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()


def _line(record: ConsumedRecord, key_separator: str | None) -> bytes:
    value = b"null" if record.value is None else record.value
    if key_separator is None:
        return value
    return (b"null" if record.key is None else record.key) + key_separator.encode() + value


def _after(records: list[ConsumedRecord]) -> dict[TopicPartition, int]:
    return {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
