"""`chronik produce`: writes what it reads to a topic, a record for each line or row."""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from chronik.cli.arguments import WrongInput, add_client_arguments, cluster_of, parse_pairs
from chronik.cli.records.incoming import add_format_arguments, portions_of
from chronik.cli.records.lines import Portion
from chronik.client.cluster import Cluster
from chronik.client.errors import ClientError
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord, TopicPartition
from chronik.errors import ChronikError
from chronik.limits import MIB
from chronik.protocol.compression import Codec
from chronik.protocol.errors import KafkaError
from chronik.protocol.records import RecordHeader
from chronik.wording import counted

READ_BYTES_MAX = MIB
SHOWN_AFTER_SECONDS = 1.0
"""What is done sooner needs no progress bar."""

Tell = Callable[[int, int], None]
"""Is told how many bytes were read so far, and how many records are written."""


class NotWritten(ChronikError):
    """A broker did not take what it was sent; the message says which lines that was."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--file", type=Path, metavar="FILE", help="what to read (default: standard input)")
    add_format_arguments(parser)
    parser.add_argument("-p", "--partition", type=int, metavar="N", help="write to this partition, whatever the key")
    parser.add_argument(
        "-z", "--codec", choices=[codec.name.lower() for codec in Codec], default="none", help="(default: %(default)s)"
    )
    parser.add_argument(
        "-H", "--header", action="append", default=[], metavar="NAME=VALUE", help="for every record; repeatable"
    )
    parser.add_argument("--acks", choices=("all", "1"), default="all", help="(default: %(default)s)")
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="show no progress, and do not say how many records were written"
    )
    add_client_arguments(parser, run)


def run(arguments: argparse.Namespace) -> int:
    portions = portions_of(arguments)
    headers = tuple((name, value.encode()) for name, value in parse_pairs(arguments.header, "--header").items())
    with cluster_of(arguments) as cluster, _opened(arguments.file) as source, _progress(arguments, source) as tell:
        chunks = _Chunks(source)
        writer = _Writer(cluster, arguments, headers)
        try:
            for portion in portions(chunks):
                writer.write(portion)
                tell(chunks.bytes_read, writer.written)
        except (WrongInput, NotWritten) as error:
            raise type(error)(f"{error} ({_told(writer.written)} before)") from error
    if not arguments.quiet:
        print(f"{_told(writer.written)} to {arguments.topic}", file=sys.stderr)
    return 0


def _told(written: int) -> str:
    return f"{counted(written, 'record')} written"


# Out


class _Writer:
    def __init__(self, cluster: Cluster, arguments: argparse.Namespace, headers: tuple[RecordHeader, ...]) -> None:
        codec = Codec[arguments.codec.upper()]
        self._cluster, self._topic = cluster, arguments.topic
        self._producer = Producer(cluster, codec=codec, acks=-1 if arguments.acks == "all" else 1)
        self._partition, self._headers = arguments.partition, headers
        self.written = 0

    def write(self, portion: Portion) -> None:
        """Raises WrongInput for a partition that is not there, when all before it is written, or NotWritten."""
        if not portion:
            return
        numbers = [number for number, _ in portion]
        records = [self._with_extras(record) for _, record in portion]
        usable = self._usable(records)
        self._send(records[:usable], numbers)
        if usable < len(records):
            told = f"topic {self._topic} has no partition {records[usable].partition}"
            raise WrongInput(f"line {numbers[usable]}: {told}")

    def _with_extras(self, record: OutgoingRecord) -> OutgoingRecord:
        partition = record.partition if self._partition is None else self._partition
        return record._replace(partition=partition, headers=record.headers + self._headers)

    def _usable(self, records: list[OutgoingRecord]) -> int:
        """Returns how many come before the first whose partition is not there."""
        if all(record.partition is None for record in records):
            return len(records)
        there = {None, *(each.partition for each in self._partitions())}
        wrong = (number for number, record in enumerate(records) if record.partition not in there)
        return next(wrong, len(records))

    def _partitions(self) -> list[TopicPartition]:
        return self._cluster.retrying(lambda: self._cluster.partitions(self._topic, create=True))

    def _send(self, records: list[OutgoingRecord], numbers: list[int]) -> None:
        if not records:
            return
        try:
            self._producer.send(self._topic, records)
        except (ClientError, KafkaError) as error:
            first, last = numbers[0], numbers[len(records) - 1]
            where = f"line {first}" if first == last else f"lines {first} to {last}, or some of them"
            raise NotWritten(f"{where}: {error}") from error
        self.written += len(records)


# In


class _Chunks:
    """What can be read at once, and how much that was in all."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.bytes_read = 0

    def __iter__(self) -> Iterator[bytes]:
        while chunk := os.read(self._descriptor, READ_BYTES_MAX):
            self.bytes_read += len(chunk)
            yield chunk


@contextmanager
def _opened(file: Path | None) -> Iterator[int]:
    """Raises OSError."""
    if file is None:
        yield sys.stdin.fileno()
        return
    with file.open("rb", buffering=0) as opened:
        yield opened.fileno()


@contextmanager
def _progress(arguments: argparse.Namespace, source: int) -> Iterator[Tell]:
    """Shows it where somebody looks, and does not type the records at the same time."""
    if arguments.quiet or not sys.stderr.isatty() or os.isatty(source):
        yield lambda bytes_read, written: None
        return
    from chronik.pipeline.journal.bars import Bar

    status = os.fstat(source)
    is_file = stat.S_ISREG(status.st_mode)
    total = status.st_size - os.lseek(source, 0, os.SEEK_CUR) if is_file else None
    with Bar(arguments.topic, total, unit="bytes" if is_file else "records", hidden_for_s=SHOWN_AFTER_SECONDS) as bar:
        yield lambda bytes_read, written: bar.reach(bytes_read if is_file else written)
