"""Driver of kcat (librdkafka 2.0 in Debian 12; `python -m drivers.kcat`).

kcat reads records separated by delimiters, and takes headers and the partition from its command line. So one process
writes each run of records that share those. A record cannot have both a null and an empty field (`-Z` makes every empty
field null), and timestamps are always the current time.
"""

from __future__ import annotations

import io
import itertools
import queue
import re
import signal
import subprocess
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

from .command_loop import serve
from .members import HEARTBEAT_MS, Members, Membership
from .wire import ExpectedRecords, Header, ReceivedRecord, Record

KEY_END = b"<~key~>"
RECORD_END = b"<~record~>"
# Headers precede the fields with a length prefix, up to a byte that no test header contains.
HEADERS_END = b"\x1e"
FORMAT = r"%t %p %o %T %K %S %h\x1e%k%s"
PROCESS_TIMEOUT_S = 60
READERS_AT_A_TIME = 4  # a process mostly waits for its connections
ASSIGNED = re.compile(rb"% Group \S+ rebalanced \(memberid \S+\): assigned: (.*)$")
REVOKED = re.compile(rb"% Group \S+ rebalanced \(memberid \S+\): revoked: (.*)$")
PARTITION = re.compile(rb"(\S+) \[(\d+)\]")


class Driver:
    """Basic commands with kcat."""

    def capabilities(self) -> dict[str, Any]:
        version_text = subprocess.run(["kcat", "-V"], capture_output=True, check=True, text=True).stdout
        return {
            "version": next(line for line in version_text.splitlines() if line.startswith("Version")),
            "codecs": ["none", "gzip", "snappy", "lz4", "zstd"],
            "headers": True,
            "null_headers": True,
            "null_key_and_value": True,
            "timestamps": False,
            "idempotence": False,  # librdkafka supports it, but kcat's own retries do not
            "assignors": ["range"],
            "commits": False,  # only automatically, on leave
            "transactions": False,
            "static_members": True,
        }

    def produce(
        self, bootstrap: str, topic: str, codec: str, records: list[dict[str, Any]], idempotent: bool = False
    ) -> None:
        wanted = [Record.from_json(fields) for fields in records]
        for (headers, partition, with_nulls), run in itertools.groupby(wanted, key=_command_line_part):
            command = ["kcat", "-P", "-b", bootstrap, "-t", topic, "-z", codec, "-D", RECORD_END, "-K", KEY_END]
            command += ["-p", str(partition)] if partition is not None else []
            command += ["-Z"] if with_nulls else []
            for name, value in headers:
                command += ["-H", name.encode() if value is None else name.encode() + b"=" + value]
            stdin_bytes = b"".join((r.key or b"") + KEY_END + (r.value or b"") + RECORD_END for r in run)
            _run(command, stdin_bytes)

    def consume(self, bootstrap: str, topics: dict[str, int], group: str | None, timeout_s: float) -> dict[str, Any]:
        reading = ExpectedRecords(topics)
        problem = None
        try:
            if group is None:
                commands = [_read_topic(bootstrap, topic, count) for topic, count in topics.items()]
            else:
                commands = [[*_read_group(bootstrap, group, list(topics)), "-c", str(sum(topics.values()))]]
            with ThreadPoolExecutor(READERS_AT_A_TIME) as pool:
                for output in pool.map(lambda command: _run(command, b"", timeout_s), commands):
                    reading.add(_parse_all(output))
        except Exception as error:  # the records read so far are still reported
            problem = str(error)
        return reading.to_json(problem)


class _GroupConsumer:
    """A kcat process that stays in its group until it is interrupted."""

    def __init__(self, command: list[str | bytes]) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._received: queue.SimpleQueue[ReceivedRecord] = queue.SimpleQueue()
        self._owned: set[tuple[str, int]] = set()
        self._rebalances = 0
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        threading.Thread(target=self._read_records, args=(self._process.stdout,), daemon=True).start()
        threading.Thread(target=self._read_rebalances, args=(self._process.stderr,), daemon=True).start()

    def poll(self, timeout_s: float) -> Iterable[ReceivedRecord]:
        try:
            yield self._received.get(timeout=timeout_s)
        except queue.Empty:
            if self._process.poll() is not None:
                raise RuntimeError(f"kcat exited with {self._process.returncode}") from None

    def assignment(self) -> list[tuple[str, int]]:
        return list(self._owned)

    def rebalances(self) -> int:
        return self._rebalances

    def commit(self, topic: str, partition: int, offset: int, metadata: str) -> None:
        raise NotImplementedError("kcat only commits automatically")

    def close(self) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(PROCESS_TIMEOUT_S)
        finally:
            self._process.kill()

    def _read_records(self, output: IO[bytes]) -> None:
        for record in _parse(output):
            self._received.put(record)

    def _read_rebalances(self, output: IO[bytes]) -> None:
        for line in output:
            if match := ASSIGNED.search(line.rstrip()):
                self._owned = _parse_partitions(match[1])
                self._rebalances += 1
            elif REVOKED.search(line.rstrip()):
                self._owned = set()


def _open_member(wanted: Membership) -> _GroupConsumer:
    options = ["-X", f"session.timeout.ms={wanted.session_ms}", "-X", f"heartbeat.interval.ms={HEARTBEAT_MS}"]
    options += ["-X", f"partition.assignment.strategy={wanted.assignor}"] if wanted.assignor is not None else []
    options += ["-X", f"group.instance.id={wanted.instance}"] if wanted.instance is not None else []
    command = _read_group(wanted.bootstrap, wanted.group, wanted.topics)
    return _GroupConsumer([*command[:1], *options, *command[1:]])


def _read_topic(bootstrap: str, topic: str, count: int) -> list[str | bytes]:
    return ["kcat", "-C", "-b", bootstrap, "-t", topic, "-o", "beginning", "-q", "-e", "-c", str(count), "-f", FORMAT]


def _read_group(bootstrap: str, group: str, topics: list[str]) -> list[str | bytes]:
    """Return the command that reads as a group member; -u disables output buffering."""
    options = ["-X", "auto.offset.reset=earliest", "-u", "-f", FORMAT]
    return ["kcat", "-b", bootstrap, *options, "-G", group, *topics]


def _command_line_part(record: Record) -> tuple[tuple[Header, ...], int | None, bool]:
    with_nulls = record.key is None or record.value is None
    if with_nulls and b"" in (record.key, record.value):
        raise ValueError("kcat cannot write a record with both a null and an empty field")
    return record.headers, record.partition, with_nulls


def _run(command: list[Any], stdin_bytes: bytes, timeout_s: float = PROCESS_TIMEOUT_S) -> bytes:
    completed = subprocess.run(command, input=stdin_bytes, capture_output=True, timeout=timeout_s, check=False)
    if completed.returncode != 0:
        raise RuntimeError(f"kcat exited with {completed.returncode}: {completed.stderr.decode(errors='replace')}")
    return completed.stdout


def _parse_all(output: bytes) -> Iterator[ReceivedRecord]:
    return _parse(io.BytesIO(output))


def _parse(output: IO[bytes]) -> Iterator[ReceivedRecord]:
    while prefix := _read_until(output, HEADERS_END):
        topic, partition, offset, timestamp_ms, key_length, value_length, headers = prefix.split(b" ", 6)
        yield ReceivedRecord(
            topic=topic.decode(),
            partition=int(partition),
            offset=int(offset),
            key=_read_field(output, int(key_length)),
            value=_read_field(output, int(value_length)),
            headers=tuple(_parse_headers(headers)),
            timestamp_ms=int(timestamp_ms),
        )


def _read_until(output: IO[bytes], end: bytes) -> bytes:
    """Return the bytes up to the delimiter, or b"" at the end of the output, even after an incomplete record."""
    found = bytearray()
    while byte := output.read(1):
        if byte == end:
            return bytes(found)
        found += byte
    return b""


def _read_field(output: IO[bytes], length: int) -> bytes | None:
    return None if length < 0 else output.read(length)


def _parse_headers(text: bytes) -> Iterator[Header]:
    for header in text.split(b",") if text else ():
        name, _, value = header.partition(b"=")
        yield name.decode(), None if value == b"NULL" else value


def _parse_partitions(text: bytes) -> set[tuple[str, int]]:
    return {(topic.decode(), int(partition)) for topic, partition in PARTITION.findall(text)}


if __name__ == "__main__":
    serve(Driver(), Members(_open_member))
