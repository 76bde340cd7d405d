"""The process that writes Parquet files."""

from __future__ import annotations

import io
import signal
from contextlib import closing
from typing import Any

import msgspec
import pytest

from chronik.console.messages.parquet_process import PROCESSES_MAX, ParquetProcess, TooManyParquetProcesses
from chronik.errors import ChronikError

LONGEST = 2**63 - 1


def row(offset: int, **fields: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {"key": None, "key_format": None, "value": None, "value_format": None, "headers": []}
    return {"partition": 0, "offset": offset, "timestamp": 0, **empty, **fields}


ROWS = [
    row(0, key="", value="a\0b\u2028\N{GRINNING FACE}\x7f", headers=[{"name": "", "value": None}]),
    row(LONGEST, timestamp=-LONGEST - 1, value='{"a": "\\u0000"}'),
    row(2, timestamp=LONGEST, value="x" * 3_000_000, headers=[{"name": "n", "value": "v"}] * 1000),
]


def encode(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(msgspec.json.encode(each) + b"\n" for each in rows)


@pytest.mark.parametrize("groups", [[], [ROWS], [ROWS[:1], ROWS[1:]]], ids=["no rows", "one group", "two groups"])
def test_file_has_all_rows(groups: list[list[dict[str, Any]]]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    with closing(ParquetProcess()) as process:
        file = b"".join([process.convert(encode(each)) for each in groups] + [process.convert(b"")])
    table = parquet.read_table(io.BytesIO(file))
    timestamp = table.schema.get_field_index("timestamp")
    assert table.schema.field(timestamp).type == pa.timestamp("ms", "UTC")
    rows = table.set_column(timestamp, "timestamp", table["timestamp"].cast(pa.int64())).to_pylist()
    assert rows == [each for group in groups for each in group]


def test_failed_process_is_an_error_with_its_reason() -> None:
    pytest.importorskip("pyarrow")
    with closing(ParquetProcess()) as process, pytest.raises(ChronikError, match=r"incomplete: .*JSON"):
        process.convert(b"{")


def test_processes_are_limited_and_end_when_closed_or_dropped() -> None:
    pytest.importorskip("pyarrow")
    processes = [ParquetProcess() for _ in range(PROCESSES_MAX)]
    children = [each._process for each in processes]
    with pytest.raises(TooManyParquetProcesses, match="try again later"):
        ParquetProcess()
    processes[0].convert(encode(ROWS[:1]))
    processes.pop(0).close()
    processes.append(ParquetProcess())
    children.append(processes[-1]._process)
    del processes[:]
    assert [each.returncode for each in children] == [-signal.SIGKILL] * len(children)
    with closing(ParquetProcess()) as process:
        assert process.convert(b"")
