"""`chronik produce`: writes lines from stdin to a topic, a record each.

What can be read at once is sent at once: a line typed by hand goes out alone, a file goes in large batches.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator

from chronik.cli.arguments import WrongInput, add_client_arguments, cluster_of, parse_pairs
from chronik.cli.record_json import record_from_json
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.limits import MIB
from chronik.protocol.compression import Codec
from chronik.protocol.records import RecordHeader

READ_BYTES_MAX = MIB
LINE_BYTES_MAX = 64 * MIB
"""No topic accepts a record of this size; without a limit a file without line ends would fill the memory."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("-k", "--key-separator", metavar="TEXT", help="what stands between key and value in a line")
    parser.add_argument("-p", "--partition", type=int, metavar="N", help="write to this partition, whatever the key")
    parser.add_argument(
        "-z", "--codec", choices=[codec.name.lower() for codec in Codec], default="none", help="(default: %(default)s)"
    )
    parser.add_argument(
        "-H", "--header", action="append", default=[], metavar="NAME=VALUE", help="for every record; repeatable"
    )
    parser.add_argument("--acks", choices=("all", "1"), default="all", help="(default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="lines are records as `chronik consume --json` prints them")
    parser.add_argument("-q", "--quiet", action="store_true", help="do not say how many records were written")
    add_client_arguments(parser, run)


def run(arguments: argparse.Namespace) -> int:
    headers = tuple((name, value.encode()) for name, value in parse_pairs(arguments.header, "--header").items())
    written = 0
    with cluster_of(arguments) as cluster:
        codec = Codec[arguments.codec.upper()]
        producer = Producer(cluster, codec=codec, acks=-1 if arguments.acks == "all" else 1)
        for first_number, lines in numbered(split_lines(_chunks(sys.stdin.fileno()))):
            records = [_record(line, number, arguments) for number, line in enumerate(lines, first_number)]
            producer.send(arguments.topic, [_with_extras(record, arguments.partition, headers) for record in records])
            written += len(records)
    if not arguments.quiet:
        print(f"{written} record{'' if written == 1 else 's'} written to {arguments.topic}", file=sys.stderr)
    return 0


def _record(line: bytes, number: int, arguments: argparse.Namespace) -> OutgoingRecord:
    try:
        if arguments.json:
            return record_from_json(line)
        if arguments.key_separator is None:
            return OutgoingRecord(line)
        key, separator, value = line.partition(arguments.key_separator.encode())
        if not separator:
            raise WrongInput(f"no key separator {arguments.key_separator!r}")
        return OutgoingRecord(value, key)
    except WrongInput as error:
        raise WrongInput(f"line {number}: {error}") from None


def _with_extras(record: OutgoingRecord, partition: int | None, headers: tuple[RecordHeader, ...]) -> OutgoingRecord:
    return record._replace(
        partition=record.partition if partition is None else partition, headers=record.headers + headers
    )


def _chunks(descriptor: int) -> Iterator[bytes]:
    while chunk := os.read(descriptor, READ_BYTES_MAX):
        yield chunk


def split_lines(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yields the lines that each chunk completes. The last needs no line end. Raises WrongInput for an endless one."""
    rest = bytearray()
    for chunk in chunks:
        whole, line_end, begun = chunk.rpartition(b"\n")
        if line_end:
            lines = (bytes(rest) + whole).split(b"\n")
            rest.clear()
            yield [line.removesuffix(b"\r") for line in lines]
        rest += begun
        if len(rest) > LINE_BYTES_MAX:
            raise WrongInput(f"a line of more than {LINE_BYTES_MAX} bytes")
    if rest:
        yield [bytes(rest)]


def numbered(groups: Iterable[list[bytes]]) -> Iterator[tuple[int, list[bytes]]]:
    """Yields each group of lines with the number of its first line."""
    number = 1
    for lines in groups:
        yield number, lines
        number += len(lines)
