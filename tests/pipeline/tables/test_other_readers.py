"""Other readers return the same rows of a table as Chronik, for every type of its columns, in both formats.

The readers are deltalake and PyIceberg, Polars with its readers of both formats, DuckDB through an Arrow dataset, and
DuckDB's own Parquet reader. Spark 4.1 with Delta Lake and Iceberg's runtime reads them in an environment of its own.
"""

from __future__ import annotations

import base64
import json
import random
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from chronik.pipeline.tables.catalog import open_or_create_table
from chronik.pipeline.tables.iceberg.table import IcebergTopicTable
from chronik.pipeline.tables.layout import ICEBERG_PARTITION, TableKind
from chronik.pipeline.tables.partitioning import parse_partitioning
from chronik.pipeline.tables.table_files import scan
from chronik.pipeline.tables.topic_table import TableFormat, TopicTable
from chronik.pipeline.tables.values.sql_types import SIMPLE_TYPES
from chronik.pipeline.tables.values.table_schema import parse_schema_document
from tests.pipeline.jars import SPARK_4_1, TOOLS, list_jars, skip_without_jars
from tests.pipeline.table_fixtures import SPEC, build_record_columns, commit_rows
from tests.pipeline.tables.iceberg.iceberg_tables import load_iceberg
from tests.run_size import SEED, sized

ROWS = sized(30, 3_000)

JsonMaker = Callable[[random.Random], Any]

SYNONYMS = {"byte", "short", "integer", "long", "real", "timestamp_ltz"}
WITHOUT_ICEBERG = {"tinyint", "smallint"}
"""Types that Iceberg does not have. The table cannot be created: see `test_iceberg_columns.py`."""


def make_integer(bits: int) -> JsonMaker:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return lambda random: random.choice([low, high, 0, random.randint(low, high)])


def make_time(random: random.Random) -> str:
    first = datetime(1583, 1, 1, tzinfo=UTC)
    time = random.choice([first, datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC), datetime(1970, 1, 1, tzinfo=UTC)])
    if random.random() < 0.7:
        time = first + timedelta(days=random.randint(0, 3_000_000), microseconds=random.randint(0, 86_400_000_000 - 1))
    return time.replace(tzinfo=None).isoformat() + "Z"


def make_text(random: random.Random) -> str:
    return "".join(
        random.choices(["a", "B", "ß", "\U0001f600", "\x00", "'", '"', "\n", "/", "%2F"], k=random.randint(0, 5))
    )


def make_bytes(random: random.Random) -> str:
    return base64.b64encode(random.randbytes(random.randint(0, 5))).decode()


def make_decimal(digits: int, scale: int) -> JsonMaker:
    """Return a maker of decimals in strings, which have all digits."""

    def make(random: random.Random) -> str:
        number = random.choice([10**digits - 1, random.randint(0, 10**digits - 1), 0])
        text = str(number).rjust(scale + 1, "0")
        sign = "-" if number and random.random() < 0.5 else ""
        return sign + (f"{text[:-scale]}.{text[-scale:]}" if scale else text)

    return make


SIMPLE: dict[str, JsonMaker] = {
    "boolean": lambda random: random.random() < 0.5,
    "tinyint": make_integer(8),
    "smallint": make_integer(16),
    "int": make_integer(32),
    "bigint": make_integer(64),
    "float": lambda random: random.choice([0.5, -1.25, 3.4028234663852886e38, 1.401298464324817e-45, 0.0]),
    "double": lambda random: random.choice([0.1, -1.7976931348623157e308, 5e-324, random.random()]),
    "string": make_text,
    "binary": make_bytes,
    "date": lambda random: make_time(random)[:10],
    "timestamp": make_time,
    "timestamp_ntz": lambda random: make_time(random).removesuffix("Z"),
}

OTHERS: dict[str, tuple[str, JsonMaker, dict[str, str]]] = {
    "json": ("json", lambda random: random.choice([5, "5", None, [1, {"a": None}]]), {}),
    "small_decimal": ("decimal(5,2)", make_decimal(5, 2), {"format": "string"}),
    "long_decimal": ("decimal(18,6)", make_decimal(18, 6), {"format": "string"}),
    "uint64": ("decimal(20,0)", make_decimal(20, 0), {"format": "string"}),
    "large_decimal": ("decimal(38,10)", make_decimal(38, 10), {"format": "string"}),
    "list": (
        "array<bigint>",
        lambda random: [random.choice([None, 1, 2**62]) for _ in range(random.randint(0, 3))],
        {},
    ),
    "lists": ("array<array<string>>", lambda random: random.choice([[], [None], [[]], [["a", None], ["b"]]]), {}),
    "map": ("map<string, double>", lambda random: random.choice([{}, {"a": 0.5}, {"a": None, "b": 1.5}]), {}),
    "maps": (
        "map<string, struct<at: timestamp, tags: array<string>>>",
        lambda random: random.choice([{}, {"x": None}, {"x": {"at": make_time(random), "tags": [make_text(random)]}}]),
        {},
    ),
    "struct": (
        "struct<id: bigint, name: string, inner: struct<day: date, raw: binary>>",
        lambda random: random.choice(
            [
                {"id": 1, "name": None, "inner": None},
                {"id": None, "name": make_text(random), "inner": {"day": "2024-02-29", "raw": make_bytes(random)}},
            ]
        ),
        {},
    ),
    "structs": ("array<struct<n: int>>", lambda random: random.choice([[], [None], [{"n": 1}, {"n": None}]]), {}),
}

PLACES = ("DE", "a b/c", "ß", "100%", None)


def list_columns(format: TableFormat) -> dict[str, tuple[str, JsonMaker, dict[str, str]]]:
    types = [name for name in SIMPLE if format is TableFormat.DELTA or name not in WITHOUT_ICEBERG]
    columns: dict[str, tuple[str, JsonMaker, dict[str, str]]] = {
        f"{name}_column": (name, SIMPLE[name], {}) for name in types
    }
    return columns | OTHERS | {"place": ("string", lambda random: random.choice(PLACES), {})}


def build_table(root: Path, format: TableFormat) -> TopicTable:
    """Return a table with several files and partitions, and a column that the first files do not have."""
    generator = random.Random(SEED)
    columns = list_columns(format)
    document = {"columns": {name: {"type": kind, **more} for name, (kind, _, more) in columns.items()}}
    partitioning = parse_partitioning("place, day(timestamp_column)")
    spec = replace(SPEC, kind=TableKind.DECODED, partitioning=partitioning, table_format=format)
    table = open_or_create_table(f"{root}/{spec.topic}", spec, schema=parse_schema_document(document))
    for start in (0, ROWS // 2):
        offsets = range(start, start + ROWS // 2)
        values = [{name: make(generator) for name, (_, make, _) in columns.items()} for _ in offsets]
        values = [{name: each for name, each in value.items() if generator.random() < 0.9} for value in values]
        if start:
            document["columns"]["added"] = {"type": "struct<a: bigint, b: array<date>>"}
            table.set_schema(parse_schema_document(document))
            values = [value | {"added": {"a": 1, "b": ["2026-11-19", None]}} for value in values]
        texts = [None if generator.random() < 0.05 else json.dumps(value).encode() for value in values]
        commit_rows(table, 0, build_record_columns(offsets, texts))
    return table


@pytest.fixture(scope="module")
def delta_table(tmp_path_factory: pytest.TempPathFactory) -> TopicTable:
    return build_table(tmp_path_factory.mktemp("delta"), TableFormat.DELTA)


@pytest.fixture(scope="module")
def iceberg_table(tmp_path_factory: pytest.TempPathFactory) -> IcebergTopicTable:
    table = build_table(tmp_path_factory.mktemp("iceberg"), TableFormat.ICEBERG)
    assert isinstance(table, IcebergTopicTable)
    return table


# Comparison


def normalize(value: Any, data_type: pa.DataType) -> Any:
    """Return a value in a form that does not depend on the reader: maps, for example, are lists of pairs in some."""
    if value is None:
        return None
    if pa.types.is_struct(data_type):
        return {field.name: normalize(value[field.name], field.type) for field in data_type}
    if pa.types.is_list(data_type):
        return [normalize(each, data_type.value_type) for each in value]
    if pa.types.is_map(data_type):
        pairs = (
            value.items()
            if isinstance(value, dict)
            else [(each["key"], each["value"]) if isinstance(each, dict) else each for each in value]
        )
        return sorted((key, normalize(item, data_type.item_type)) for key, item in pairs)
    if pa.types.is_timestamp(data_type) and data_type.tz is not None:
        return value.astimezone(UTC)
    return value


def replace_null(value: Any, data_type: pa.DataType) -> Any:
    """Return a value as PyIceberg 0.12 reads it: null lists of structs, and null maps to structs, are empty.

    See iceberg-python#3833.
    """
    is_list = pa.types.is_list(data_type) and pa.types.is_struct(data_type.value_type)
    is_map = pa.types.is_map(data_type) and pa.types.is_struct(data_type.item_type)
    return [] if value is None and (is_list or is_map) else value


def normalize_rows(rows: Iterable[dict[str, Any]], schema: pa.Schema) -> list[dict[str, Any]]:
    found = [{name: normalize(value, schema.field(name).type) for name, value in row.items()} for row in rows]
    return sorted(found, key=lambda row: row["_offset"])  # the tables have the rows of one partition


def read_own_rows(table: TopicTable, names: Sequence[str]) -> list[dict[str, Any]]:
    files = table.files()
    rows = [row for batch in scan(files, names) for row in batch.to_pylist()]
    return normalize_rows(rows, files.schema)


def check_rows(
    table: TopicTable,
    rows: list[dict[str, Any]],
    *,
    without: Iterable[str] = (),
    is_pyiceberg: bool = False,
    has_iceberg_names: bool = False,
) -> None:
    if has_iceberg_names:
        rows = [{"_partition" if name == ICEBERG_PARTITION else name: row[name] for name in row} for row in rows]
    schema = table.files().schema
    names = [name for name in schema.names if name not in set(without)]
    assert set(rows[0]) == set(names)
    expected = read_own_rows(table, names)
    found = normalize_rows(rows, schema)
    assert len(found) == len(expected) == ROWS // 2 * 2
    for name in names:
        values = [row[name] for row in expected]
        if is_pyiceberg:
            values = [replace_null(each, schema.field(name).type) for each in values]
        assert [row[name] for row in found] == values, name


def test_table_has_every_type(delta_table: TopicTable, iceberg_table: TopicTable) -> None:
    assert set(SIMPLE) | SYNONYMS == set(SIMPLE_TYPES)
    for table in (delta_table, iceberg_table):
        rows = read_own_rows(table, table.files().schema.names)
        for name in table.files().schema.names:
            has_values = any(row[name] is not None for row in rows)
            assert has_values or name in ("_headers", "_timestamp_ms", "_rescued"), name
        assert len(table.files().files) > 5


# Delta


def read_delta(table: TopicTable) -> DeltaTable:
    return DeltaTable(table.uri)


def test_deltalake_returns_the_same_rows(delta_table: TopicTable) -> None:
    builder = QueryBuilder().register("orders", read_delta(delta_table))
    found = pa.table(builder.execute("SELECT * FROM orders").read_all())
    check_rows(delta_table, found.to_pylist())


def test_polars_returns_the_same_rows_of_delta_table(delta_table: TopicTable) -> None:
    check_rows(delta_table, polars.read_delta(delta_table.uri).to_dicts())


def test_duckdb_returns_the_same_rows_of_delta_table(delta_table: TopicTable) -> None:
    orders = read_delta(delta_table).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("orders", orders)
        found = connection.sql("SELECT * FROM orders").to_arrow_table()
    check_rows(delta_table, found.to_pylist())


# Iceberg

HIDDEN = ("_timestamp_column_day",)
"""Partition columns that only Chronik's readers have."""


def test_pyiceberg_returns_the_same_rows(iceberg_table: IcebergTopicTable) -> None:
    found = load_iceberg(iceberg_table).scan().to_arrow()
    check_rows(iceberg_table, found.to_pylist(), without=HIDDEN, is_pyiceberg=True, has_iceberg_names=True)


def test_polars_returns_the_same_rows_of_iceberg_table(
    iceberg_table: IcebergTopicTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # as without the package polars_iceberg
    found = polars.scan_iceberg(load_iceberg(iceberg_table)).collect()
    check_rows(iceberg_table, found.to_dicts(), without=HIDDEN, has_iceberg_names=True)


def test_duckdb_returns_the_same_rows_of_iceberg_table(iceberg_table: IcebergTopicTable) -> None:
    with load_iceberg(iceberg_table).scan().to_duckdb("orders") as connection:
        found = connection.sql("SELECT * FROM orders").to_arrow_table()
    check_rows(iceberg_table, found.to_pylist(), without=HIDDEN, is_pyiceberg=True, has_iceberg_names=True)


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_duckdb_reads_the_same_rows_from_parquet_files(
    format: str, delta_table: TopicTable, iceberg_table: TopicTable
) -> None:
    table = delta_table if format == "delta" else iceberg_table
    files = table.files()
    paths = [files.storage.full_path(file.path) for file in files.files]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        reader = connection.read_parquet(paths, union_by_name=True, hive_partitioning=False)
        found = reader.to_arrow_table()
    check_rows(table, found.to_pylist(), without=files.partition_by if format == "delta" else HIDDEN)


# Spark without Chronik


@pytest.mark.xdist_group("jvms")
def test_spark_without_chronik_returns_the_same_rows(
    delta_table: TopicTable, iceberg_table: IcebergTopicTable, tmp_path: Path
) -> None:
    skip_without_jars(SPARK_4_1)
    database = Path(iceberg_table.uri).parent / "iceberg_catalog.db"
    files = [tmp_path / "delta.arrow", tmp_path / "iceberg.arrow"]
    command = [TOOLS / "spark-4.1" / "bin" / "python", Path(__file__).with_name("plain_spark.py")]
    jars = list_jars(SPARK_4_1)[0].parent
    result = subprocess.run(
        [*command, jars, delta_table.uri, database, *files], capture_output=True, text=True, check=False, timeout=600
    )
    assert result.returncode == 0, result.stderr[-2000:]
    delta_rows, iceberg_rows = (pa.ipc.open_file(str(path)).read_all().to_pylist() for path in files)
    check_rows(delta_table, delta_rows)
    check_rows(iceberg_table, iceberg_rows, without=HIDDEN, has_iceberg_names=True)
