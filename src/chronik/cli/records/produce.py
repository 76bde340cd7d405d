"""`chronik produce`: produce a record for each line or row of the input."""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from chronik.cli.arguments import (
    InvalidInput,
    add_client_arguments,
    add_registry_argument,
    connect_cluster,
    parse_key_values,
)
from chronik.cli.records.input_formats import NumberedRecords, add_format_arguments, create_input_parser
from chronik.cli.records.record_encoder import RecordEncoders, add_schema_arguments
from chronik.cli.records.value_registry import open_value_registry
from chronik.client.cluster import ClusterClient
from chronik.client.errors import ClientError
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord, TopicPartition
from chronik.errors import ChronikError
from chronik.limits import MIB
from chronik.protocol.compression import Codec
from chronik.protocol.errors import KafkaError
from chronik.protocol.records import RecordHeader
from chronik.wording import pluralize

READ_BYTES_MAX = MIB
PROGRESS_DELAY_SECONDS = 1.0
"""Time in seconds after which producing shows a progress bar.

Short commands show none.
"""

ProgressCallback = Callable[[int, int], None]
"""A callback that receives the number of bytes read and of records produced."""


class ProduceError(ChronikError):
    """An error for input records that the broker has not acknowledged, with their line numbers."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", help="topic to write to")
    parser.add_argument("--file", type=Path, metavar="FILE", help="input file (default: stdin)")
    add_format_arguments(parser)
    add_schema_arguments(parser)
    add_registry_argument(parser)
    parser.add_argument(
        "-p", "--partition", type=int, metavar="N", help="produce to partition N, regardless of the key"
    )
    parser.add_argument(
        "-z",
        "--codec",
        choices=[codec.name.lower() for codec in Codec],
        default="none",
        help="compression (default: %(default)s)",
    )
    parser.add_argument(
        "-H", "--header", action="append", default=[], metavar="NAME=VALUE", help="header of all records; repeatable"
    )
    parser.add_argument(
        "--acks", choices=("all", "1"), default="all", help="required acknowledgements (default: %(default)s)"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print neither progress nor the number of records")
    add_client_arguments(parser, run)


def run(arguments: argparse.Namespace) -> int:
    encoders = RecordEncoders(arguments, open_value_registry)
    parse_input = create_input_parser(arguments, encoders)
    headers = tuple((name, value.encode()) for name, value in parse_key_values(arguments.header, "--header").items())
    encoders.load_defaults()
    with (
        closing(encoders),
        connect_cluster(arguments) as cluster,
        _open_input(arguments.file) as source,
        _show_progress(arguments, source) as report,
    ):
        chunks = _InputChunks(source)
        writer = _RecordWriter(cluster, arguments, headers)
        try:
            for portion in parse_input(chunks):
                writer.write(portion)
                report(chunks.bytes_read, writer.written)
        except (InvalidInput, ProduceError) as error:
            raise type(error)(f"{error} ({_format_count(writer.written)} before it)") from error
    if not arguments.quiet:
        print(f"{_format_count(writer.written)} to {arguments.topic}", file=sys.stderr)
    return 0


def _format_count(written: int) -> str:
    return f"{pluralize(written, 'record')} written"


# Output


class _RecordWriter:
    def __init__(
        self, cluster: ClusterClient, arguments: argparse.Namespace, headers: tuple[RecordHeader, ...]
    ) -> None:
        codec = Codec[arguments.codec.upper()]
        self._cluster, self._topic = cluster, arguments.topic
        self._producer = Producer(cluster, codec=codec, acks=-1 if arguments.acks == "all" else 1)
        self._partition, self._headers = arguments.partition, headers
        self.written = 0

    def write(self, portion: NumberedRecords) -> None:
        """Send a chunk of records and wait until they are acknowledged.

        Raises:
            ProduceError: Records were not acknowledged.
            InvalidInput: A partition does not exist.
        """
        if not portion:
            return
        numbers = [number for number, _ in portion]
        records = [self._apply_defaults(record) for _, record in portion]
        valid = self._count_valid_records(records)
        self._send(records[:valid], numbers)
        if valid < len(records):
            problem = f"topic {self._topic} has no partition {records[valid].partition}"
            raise InvalidInput(f"line {numbers[valid]}: {problem}")

    def _apply_defaults(self, record: OutgoingRecord) -> OutgoingRecord:
        partition = record.partition if self._partition is None else self._partition
        return record._replace(partition=partition, headers=record.headers + self._headers)

    def _count_valid_records(self, records: list[OutgoingRecord]) -> int:
        """Return the number of records that precede the first record for an unknown partition."""
        if all(record.partition is None for record in records):
            return len(records)
        existing = {None, *(each.partition for each in self._list_partitions())}
        wrong = (number for number, record in enumerate(records) if record.partition not in existing)
        return next(wrong, len(records))

    def _list_partitions(self) -> list[TopicPartition]:
        return self._cluster.retry(lambda: self._cluster.partitions(self._topic, create=True))

    def _send(self, records: list[OutgoingRecord], numbers: list[int]) -> None:
        if not records:
            return
        try:
            self._producer.send(self._topic, records)
        except (ClientError, KafkaError) as error:
            first, last = numbers[0], numbers[len(records) - 1]
            where = f"line {first}" if first == last else f"lines {first} to {last}, or some of them"
            raise ProduceError(f"{where}: {error}") from error
        self.written += len(records)


# Input


class _InputChunks:
    """An iterable over the chunks of the input, which counts the bytes read so far."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.bytes_read = 0

    def __iter__(self) -> Iterator[bytes]:
        while chunk := os.read(self._descriptor, READ_BYTES_MAX):
            self.bytes_read += len(chunk)
            yield chunk


@contextmanager
def _open_input(file: Path | None) -> Iterator[int]:
    """Open the input file, or stdin if the file is None, and return its file descriptor."""
    if file is None:
        yield sys.stdin.fileno()
        return
    with file.open("rb", buffering=0) as opened:
        yield opened.fileno()


@contextmanager
def _show_progress(arguments: argparse.Namespace, source: int) -> Iterator[ProgressCallback]:
    """Show a progress bar if stderr is a terminal, unless the input is typed interactively."""
    if arguments.quiet or not sys.stderr.isatty() or os.isatty(source):
        yield lambda bytes_read, written: None
        return
    from chronik.pipeline.journal.progress_bar import ProgressBar

    status = os.fstat(source)
    is_file = stat.S_ISREG(status.st_mode)
    total = status.st_size - os.lseek(source, 0, os.SEEK_CUR) if is_file else None
    with ProgressBar(
        arguments.topic, total, unit="bytes" if is_file else "records", delay_s=PROGRESS_DELAY_SECONDS
    ) as bar:
        yield lambda bytes_read, written: bar.update(bytes_read if is_file else written)
