"""Landing of Avro and Protobuf compared with Spark's connector and `from_avro` or a Protobuf UDF, per core.

First comes the floor: the same records without decoding, that is, fetching them, building Chronik's own columns and
writing these as Parquet.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.cluster.figures import Figure
from bench.pipeline.landing import (
    CHRONIK,
    SETUP,
    SPARK,
    LandingComparison,
    LandingResult,
    find_connector_jars,
    measure_methods,
)
from bench.pipeline.plan import WITHOUT_MAINTENANCE, PipelineBenchmarkPlan, format_millions
from bench.servers import ROOT
from chronik.bench.errors import BenchmarkError
from chronik.client.cluster import ClusterClient
from chronik.client.registry_discovery import discover_registry
from chronik.formats.codec import ValueFormat, WriterSchema
from chronik.formats.encoding import build_prefix, write_zigzag
from chronik.formats.registry_client import RegistryClient
from chronik.pipeline.landing.landing_task import run_landing_task
from chronik.pipeline.landing.runner import run
from chronik.pipeline.landing.settings import LandingSettings, parse_table_settings
from chronik.pipeline.landing.topic_landing import TopicLanding
from chronik.pipeline.spark.masters import RETRYING_LOCAL_MASTER
from chronik.pipeline.spark.runtime import session
from chronik.pipeline.spark.tasks import spark_task_runner
from chronik.pipeline.tables.layout import TableKind, initial_schema
from chronik.varint import write_varint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CODEC: Final = "zstd"
FLOOR: Final = "floor without decoding"
AVRO_RATIO_LEAST, PROTOBUF_RATIO_LEAST = 2.0, 1.5
AVRO_CPU_SECONDS_MOST: Final = 2.5
"""CPU seconds per million rows: 0.4 million rows per second and core."""

SPARK_AVRO: Final = ROOT / ".tools" / "jars" / "spark-avro"

AVRO_SCHEMA: Final = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "customer", "type": "string"},
            {"name": "session", "type": "string"},
            {"name": "total", "type": "double"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "quantity", "type": "int"},
            {"name": "is_new", "type": "boolean"},
            {"name": "page", "type": "string"},
        ],
    }
)
PROTOBUF_SCHEMA: Final = (
    'syntax = "proto3"; message Order { int64 id = 1; string customer = 2; string session = 3; double total = 4;'
    " int64 at = 5; int32 quantity = 6; bool is_new = 7; string page = 8; }"
)
PREFIX_BYTES: Final = {ValueFormat.AVRO: 5, ValueFormat.PROTOBUF: 6}
UDF_SCHEMA: Final = (
    "id bigint, customer string, session string, total double, at bigint, quantity int, is_new boolean, page string,"
    " key binary, partition int, offset bigint, timestamp timestamp"
)

_TEXTS: Final = (b"customer-########", b"################", b"/products/########/details")
_AT: Final = 1_763_542_800_000


def build_template(format: ValueFormat, schema_id: int) -> tuple[bytes, npt.NDArray[np.intp]]:
    """Return an encoded order, and the positions of its bytes that may be replaced by any ASCII digits."""
    out = bytearray(build_prefix(schema_id, (0,) if format is ValueFormat.PROTOBUF else ()))
    positions: list[int] = []
    write_number = write_zigzag if format is ValueFormat.AVRO else write_varint

    def add_tag(number: int, wire_type: int) -> None:
        if format is ValueFormat.PROTOBUF:
            write_varint(out, number << 3 | wire_type)

    def add_text(number: int, text: bytes) -> None:
        add_tag(number, 2)
        write_number(out, len(text))
        positions.extend(len(out) + index for index, each in enumerate(text) if each == ord("#"))
        out.extend(text)

    def add_number(number: int, value: int) -> None:
        add_tag(number, 0)
        write_number(out, value)

    add_number(1, 123_456_789_012)
    add_text(2, _TEXTS[0])
    add_text(3, _TEXTS[1])
    add_tag(4, 1)
    positions.extend(len(out) + index for index in range(5))
    out.extend(np.array([1234.5], "<f8").tobytes())
    add_number(5, _AT)
    add_number(6, 150)
    add_tag(7, 0)
    out.append(1)
    add_text(8, _TEXTS[2])
    return bytes(out), np.array(positions)


class TypedLandingComparison(LandingComparison):
    """Typed values as columns, and the floor without decoding."""

    def __init__(self, spark: SparkSession, plan: PipelineBenchmarkPlan, format: ValueFormat, schema: str) -> None:
        super().__init__(spark, plan, CODEC)
        self._format = format
        self.use = f"{format}-orders"
        self.ways = {CHRONIK: self._chronik, FLOOR: self._floor, SPARK: self._spark_connector}
        with ClusterClient(plan.bootstrap) as cluster:
            settings = discover_registry(cluster)
        if settings is None:
            raise BenchmarkError("the broker has no schema registry")
        client = RegistryClient(settings)
        schema_id = client.register(f"{self.use}-value", WriterSchema(format, schema))
        client.close()
        self._template, self._digits = build_template(format, schema_id)

    def _find_topic(self, records: int) -> str:
        return self._plan.filled_topic(records, self.use, self._template, self._digits)

    def _chronik(self, topic: str, folder: Path) -> None:
        settings: dict[str, Any] = {"once": True, "codec": self._codec, "spark": self._spark}
        settings["maintenance"] = WITHOUT_MAINTENANCE
        run(self._plan.bootstrap, str(folder), [topic], format=self._format.value, **settings)

    def _floor(self, topic: str, folder: Path) -> None:
        """Run the tasks of a landing round with the system columns only, without a commit."""
        settings = LandingSettings(
            self._plan.bootstrap, str(folder), table_settings=parse_table_settings("raw"), group="floor"
        )
        runner = spark_task_runner(self._spark)
        with ClusterClient(self._plan.bootstrap) as cluster:
            planned = TopicLanding(topic, settings, cluster).plan_next_round(self._files)
            schema = pa.schema([each for each in initial_schema(TableKind.DECODED) if each.name != "_rescued"])
            tasks = [
                replace(task, table=replace(task.table, schema=schema), codec=self._codec) for task in planned.tasks
            ]
            for result in runner(run_landing_task, tasks):
                if result.error is not None:
                    raise BenchmarkError(result.error)

    def _spark_connector(self, topic: str, folder: Path) -> None:
        frame = self._read_topic(topic)
        if self._format is ValueFormat.AVRO:
            from pyspark.sql.avro.functions import from_avro
            from pyspark.sql.functions import expr

            payload = expr(f"substring(value, {PREFIX_BYTES[self._format] + 1})")
            values = from_avro(payload, AVRO_SCHEMA).alias("values")
            decoded = frame.select(values, "key", "partition", "offset", "timestamp")
            self._write(decoded.select("values.*", "key", "partition", "offset", "timestamp"), folder)
            return
        columns = frame.select("value", "key", "partition", "offset", "timestamp")
        self._write(columns.mapInArrow(partial(decode_with_protobuf, PREFIX_BYTES[self._format]), UDF_SCHEMA), folder)


def decode_with_protobuf(skipped: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decode values as a user's function does, with the classes of Google's library."""
    parse = load_order_class().FromString
    names = ("id", "customer", "session", "total", "at", "quantity", "is_new", "page")
    types = (pa.int64(), pa.string(), pa.string(), pa.float64(), pa.int64(), pa.int32(), pa.bool_(), pa.string())
    for batch in batches:
        orders = [parse(value[skipped:]) for value in batch.column("value").to_pylist()]
        arrays = [
            pa.array([getattr(order, name) for order in orders], type) for name, type in zip(names, types, strict=True)
        ]
        others = [batch.column(name) for name in ("key", "partition", "offset", "timestamp")]
        yield pa.RecordBatch.from_arrays([*arrays, *others], names=[*names, "key", "partition", "offset", "timestamp"])


def load_order_class() -> Any:
    """Return the message class that protoc would generate."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3")
    message = file.message_type.add(name="Order")
    types = (
        ("id", kinds.TYPE_INT64), ("customer", kinds.TYPE_STRING), ("session", kinds.TYPE_STRING),
        ("total", kinds.TYPE_DOUBLE), ("at", kinds.TYPE_INT64), ("quantity", kinds.TYPE_INT32),
        ("is_new", kinds.TYPE_BOOL), ("page", kinds.TYPE_STRING),
    )  # fmt: skip
    for number, (name, type) in enumerate(types, 1):
        message.field.add(name=name, number=number, type=type, label=kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))


def measure_typed(plan: PipelineBenchmarkPlan) -> list[Figure]:
    """Measure landing of Avro and of Protobuf. Raises BenchFailed."""
    jars = ",".join(map(str, [*find_connector_jars(), *find_avro_jars()]))
    figures: list[Figure] = []
    with session(RETRYING_LOCAL_MASTER, **{"spark.jars": jars}) as spark:
        for format, schema, ratio in (
            (ValueFormat.AVRO, AVRO_SCHEMA, AVRO_RATIO_LEAST),
            (ValueFormat.PROTOBUF, PROTOBUF_SCHEMA, PROTOBUF_RATIO_LEAST),
        ):
            measured = measure_methods(TypedLandingComparison(spark, plan, format, schema), plan)
            figures += _build_figures(plan, format, measured, ratio)
    return figures


def _build_figures(
    plan: PipelineBenchmarkPlan, format: ValueFormat, measured: dict[str, list[LandingResult]], ratio_least: float
) -> list[Figure]:
    costs = {method: [each.cpu_s_per_million for each in results] for method, results in measured.items()}
    ratios = [other / mine for mine, other in zip(costs[CHRONIK], costs[SPARK], strict=True)]
    of_floor = [floor / mine for mine, floor in zip(costs[CHRONIK], costs[FLOOR], strict=True)]
    name = {"avro": "Avro", "protobuf": "Protobuf"}[format.value]
    what = f"{format_millions(plan.records)} {name} rows"
    most = AVRO_CPU_SECONDS_MOST if format is ValueFormat.AVRO else None
    return [
        Figure(f"{what}: {CHRONIK} / {SPARK}, rows per CPU second", ratios, at_least=ratio_least),
        Figure(f"{what}: {CHRONIK} / {FLOOR}, rows per CPU second", of_floor),
        Figure(f"{what}: {CHRONIK}, Spark's CPU, s per million", costs[CHRONIK], below=most),
        Figure(f"{what}: {FLOOR}, Spark's CPU, s per million", costs[FLOOR]),
        Figure(f"{what}: {SPARK}, Spark's CPU, s per million", costs[SPARK]),
        *(
            Figure(f"{what}: {method}, rows/s", [each.rows_per_second for each in results])
            for method, results in measured.items()
        ),
    ]


def find_avro_jars() -> list[Path]:
    """Return the jar with `from_avro`, downloading it if necessary. Raises BenchFailed."""
    if not SPARK_AVRO.is_dir():
        subprocess.run([SETUP, "spark-avro"], stdout=sys.stderr, check=False)
    jars = sorted(SPARK_AVRO.glob("*.jar"))
    if not jars:
        raise BenchmarkError("spark-avro could not be downloaded; see .tools/mvn-spark-avro.log")
    return jars
