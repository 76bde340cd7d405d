"""A process that converts JSON lines to a Parquet file.

Importing pyarrow blocks the event loop for tens of milliseconds, and writing takes tens of MB that pyarrow keeps.
A process of its own avoids both. It reads groups of lines and responds to each with the next bytes of the file; after
an empty group, it responds with the rest of the file and exits. Each group and response begins with its length.
"""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
import threading
import weakref
from typing import IO, Any, Final

from chronik.errors import ChronikError

LENGTH: Final = struct.Struct(">I")
EXIT_SECONDS_MAX: Final = 10.0
NICENESS: Final = 10
"""The priority of the process, below the node's."""
PROCESSES_MAX: Final = 2
"""Maximum number of concurrent processes of a node. Each takes about 110 MB beside the node."""

_slots: Final = threading.BoundedSemaphore(PROCESSES_MAX)


class TooManyParquetProcesses(ChronikError):
    """As many processes are writing Parquet files as a node may run."""


class ParquetProcess:
    """A process that writes one Parquet file. It ends when this object is closed or garbage-collected."""

    def __init__(self) -> None:
        """Start the process.

        Raises:
            TooManyParquetProcesses: Others are running.
        """
        if not _slots.acquire(blocking=False):
            raise TooManyParquetProcesses("too many Parquet files are being written: try again later")
        command, pipe = [sys.executable, "-P", "-m", __name__], subprocess.PIPE
        try:
            # In a session of its own, Ctrl-C in the node's terminal does not interrupt it.
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
        except BaseException:
            _slots.release()
            raise
        self._end = weakref.finalize(self, _end_process, self._process)

    def close(self) -> None:
        """End the process, also in the middle of a file."""
        self._end()

    def convert(self, lines: bytes) -> bytes:
        """Append rows, given as JSON lines, and return the next bytes of the file. Without rows, finish the file.

        Raises:
            ChronikError: The process has failed.
        """
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            write_frame(process.stdin, lines)
            return read_frame(process.stdout)
        except (EOFError, OSError):
            raise ChronikError(f"the Parquet file is incomplete: {self._read_reason()}") from None

    def _read_reason(self) -> str:
        _, errors = self._process.communicate(timeout=EXIT_SECONDS_MAX)
        lines = errors.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"its process exited with code {self._process.returncode}"


def _end_process(process: subprocess.Popen[bytes]) -> None:
    try:
        process.kill()
        with contextlib.suppress(BrokenPipeError):
            process.communicate(timeout=EXIT_SECONDS_MAX)
    finally:
        _slots.release()


def write_frame(stream: IO[bytes], data: bytes) -> None:
    stream.write(LENGTH.pack(len(data)))
    stream.write(data)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes:
    """Read a frame. Raise EOFError if the stream ends before."""
    (length,) = LENGTH.unpack(_read_exactly(stream, LENGTH.size))
    return _read_exactly(stream, length)


def _read_exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


# The process


class _Output:
    """A file that keeps what was written until it is taken."""

    closed = False

    def __init__(self) -> None:
        self._written = bytearray()
        self._position = 0

    def write(self, data: Any) -> int:
        self._written += data
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def take(self) -> bytes:
        taken = bytes(self._written)
        self._written.clear()
        return taken


def main() -> None:
    """Convert the rows from standard input until an empty group or the end of the input."""
    import pyarrow as pa
    from pyarrow import json, parquet

    if hasattr(os, "nice"):
        os.nice(NICENESS)
    header = pa.struct([("name", pa.string()), ("value", pa.string())])
    text = pa.string()
    schema = pa.schema(
        [
            *(("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.timestamp("ms", "UTC"))),
            *(("key", text), ("key_format", text), ("value", text), ("value_format", text)),
            ("headers", pa.list_(header)),
        ]
    )
    read_schema = schema.set(2, pa.field("timestamp", pa.int64()))
    parse_options = json.ParseOptions(explicit_schema=read_schema, unexpected_field_behavior="error")
    source, sink, output = sys.stdin.buffer, sys.stdout.buffer, _Output()
    with contextlib.suppress(EOFError, BrokenPipeError):  # the node does not want the rest
        with parquet.ParquetWriter(pa.PythonFile(output, "w"), schema, compression="zstd") as writer:
            while lines := read_frame(source):
                # One block: a row must not span two of them.
                read_options = json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
                rows = json.read_json(pa.BufferReader(lines), read_options, parse_options)
                writer.write_table(rows.cast(schema))
                write_frame(sink, output.take())
        write_frame(sink, output.take())


if __name__ == "__main__":
    main()
