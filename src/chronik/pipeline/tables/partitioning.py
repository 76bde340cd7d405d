"""Partitioning of tables: by the time of records, by columns, or by transforms of columns.

    date                              the UTC date of the record's timestamp (the default)
    hour                              the date and the hour
    none
    country                           a column of the values
    day(at), hour(at)                 the UTC day or hour of a timestamp or date
    bucket(16, customer_id)           a hash of a column, as in Iceberg

Several are separated by commas. A transform is stored in a column of its own, such as `_at_day`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chronik.errors import ConfigError
from chronik.pipeline.tables.murmur3 import compute_murmur3_hashes
from chronik.wording import format_spelling_suggestion

DATE_COLUMN, HOUR_COLUMN = "_date", "_hour"

PARTITION_KEY: Final = b"chronik.partition"
"""Key of the field metadata that marks a partition column computed by a transform from another column."""

BUCKETS_MAX: Final = 10_000

_FIELD: Final = re.compile(
    r"(?:(?P<transform>day|hour)\(\s*(?P<of>[^,()]+?)\s*\)"
    r"|bucket\(\s*(?P<buckets>\d+)\s*,\s*(?P<hashed>[^,()]+?)\s*\)|(?P<name>[^,()]+?))\s*(?:,\s*|$)"
)


class PartitionTransform(StrEnum):
    """The function that computes a partition column from its source column."""

    IDENTITY = "identity"
    DAY = "day"
    HOUR = "hour"
    BUCKET = "bucket"


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A partition column that is computed from a column of decoded values."""

    transform: PartitionTransform
    source: str
    buckets: int = 0

    @property
    def column(self) -> str:
        """Name of the partition column."""
        return self.source if self.transform is PartitionTransform.IDENTITY else f"_{self.source}_{self.transform}"

    def __str__(self) -> str:
        if self.transform is PartitionTransform.IDENTITY:
            return self.source
        if self.transform is PartitionTransform.BUCKET:
            return f"bucket({self.buckets}, {self.source})"
        return f"{self.transform}({self.source})"

    def to_field(self) -> pa.Field | None:
        """Return the Arrow field of the partition column, or None if it is a column of the values."""
        if self.transform is PartitionTransform.IDENTITY:
            return None
        data_type = {
            PartitionTransform.DAY: pa.date32(),
            PartitionTransform.HOUR: pa.string(),
            PartitionTransform.BUCKET: pa.int32(),
        }[self.transform]
        return pa.field(self.column, data_type, metadata={PARTITION_KEY: str(self)})

    def check_source(self, data_type: pa.DataType) -> None:
        """Check that the partition column can be computed from a source column of this type.

        Raises:
            ConfigError: It cannot.
        """
        is_a: Any = pa.types
        is_time = is_a.is_timestamp(data_type) or is_a.is_date32(data_type)
        is_key = is_a.is_integer(data_type) or is_a.is_string(data_type) or is_a.is_date32(data_type)
        is_valid = {
            PartitionTransform.IDENTITY: is_key or is_a.is_boolean(data_type),
            PartitionTransform.DAY: is_time,
            PartitionTransform.HOUR: is_a.is_timestamp(data_type),
            PartitionTransform.BUCKET: is_key or is_a.is_binary(data_type) or is_a.is_timestamp(data_type),
        }[self.transform]
        if not is_valid:
            raise ConfigError(f"cannot partition by {self}: column {self.source} has type {data_type}")

    def compute(self, values: pa.Array) -> pa.Array:
        """Compute the partition column from the values of its source column."""
        if self.transform is PartitionTransform.DAY:
            return values.cast(pa.date32(), safe=False)
        if self.transform is PartitionTransform.HOUR:
            hours = pc.floor_temporal(values, unit="hour")  # a cast would round times before 1970 up
            return pc.strftime(hours, format="%Y-%m-%d-%H")
        if self.transform is PartitionTransform.BUCKET:
            hashes = compute_murmur3_hashes(values) & np.uint32(0x7FFF_FFFF)
            buckets = (hashes % np.uint32(self.buckets)).astype(np.int32)
            return pa.array(buckets, mask=values.is_null().to_numpy(zero_copy_only=False))
        return values


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The partitioning of a table: its partition columns."""

    by_date: bool = False
    """Whether the table is partitioned by the date of the records' timestamps."""
    by_hour: bool = False
    """Whether the table is partitioned by the hour of the records' timestamps, too."""
    fields: tuple[PartitionField, ...] = ()

    DATE: ClassVar[Partitioning]
    HOUR: ClassVar[Partitioning]
    NONE: ClassVar[Partitioning]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the partition columns."""
        system = [DATE_COLUMN] * self.by_date + [HOUR_COLUMN] * self.by_hour
        return (*system, *(field.column for field in self.fields))

    @property
    def value(self) -> str:
        """The partitioning in the text format that `parse_partitioning` accepts."""
        system = ["hour"] if self.by_hour else ["date"] if self.by_date else []
        return ", ".join([*system, *map(str, self.fields)]) or "none"

    def __str__(self) -> str:
        return self.value

    def computed_fields(self) -> list[pa.Field]:
        """Return the fields of partition columns that are computed from columns of the values."""
        return [field for each in self.fields if (field := each.to_field()) is not None]

    def check_columns(self, schema: pa.Schema) -> None:
        """Check that a table with this schema can be partitioned.

        Raises:
            ConfigError: A column does not exist or has the wrong type.
        """
        for each in self.fields:
            if each.source not in schema.names:
                suggestion = format_spelling_suggestion(each.source, schema.names)
                raise ConfigError(
                    f"cannot partition by {each}: no column {each.source!r}{suggestion or '; declare it in a schema'}"
                )
            each.check_source(schema.field(each.source).type)
            if each.to_field() is not None and each.column.casefold() in {name.casefold() for name in schema.names}:
                raise ConfigError(f"cannot partition by {each}: column {each.column!r} exists already")


Partitioning.DATE = Partitioning(by_date=True)
Partitioning.HOUR = Partitioning(by_date=True, by_hour=True)
Partitioning.NONE = Partitioning()

TIME_PARTITIONINGS: Final = (Partitioning.DATE, Partitioning.HOUR, Partitioning.NONE)
"""The partitionings that need no column of decoded values."""


def parse_partitioning(text: str) -> Partitioning:
    """Parse a partitioning such as `date`, `hour`, `none` or `day(at), country`.

    Raises:
        ConfigError: The text is invalid.
    """
    words = text.strip()
    if words.lower() == "none":
        return Partitioning.NONE
    by_date = by_hour = False
    fields: list[PartitionField] = []
    position = 0
    while position < len(words):
        match = _FIELD.match(words, position)
        if match is None:
            expected = "date, hour, none, NAME, day(NAME), hour(NAME) or bucket(N, NAME)"
            raise ConfigError(f"invalid partitioning {text!r}: expected {expected}")
        position = match.end()
        name = match["name"]
        if name is not None and name.lower() in ("date", "hour"):
            by_date, by_hour = True, by_hour or name.lower() == "hour"
        elif name is not None:
            fields.append(PartitionField(PartitionTransform.IDENTITY, name))
        elif match["transform"] is not None:
            fields.append(PartitionField(PartitionTransform(match["transform"]), match["of"]))
        else:
            buckets = int(match["buckets"])
            if not 1 <= buckets <= BUCKETS_MAX:
                raise ConfigError(f"invalid partitioning {text!r}: expected 1 to {BUCKETS_MAX} buckets")
            fields.append(PartitionField(PartitionTransform.BUCKET, match["hashed"], buckets))
    if not by_date and not fields:
        raise ConfigError(f"invalid partitioning {text!r}: expected date, hour, none, or columns")
    columns = [field.column for field in fields]
    if len(set(columns)) < len(columns):
        raise ConfigError(f"invalid partitioning {text!r}: a column occurs twice")
    return Partitioning(by_date, by_hour, tuple(fields))
