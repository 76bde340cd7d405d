"""Conversion of a table's schema to Spark's, with the comments of its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from chronik.pipeline.tables.values.table_schema import COMMENT_KEY

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def to_spark_schema(schema: pa.Schema) -> StructType:
    """Return Spark's schema for a table. DESCRIBE shows the comments of its columns; other metadata is omitted."""
    from pyspark.sql.pandas.types import from_arrow_schema

    converted = from_arrow_schema(schema)
    for field, spark_field in zip(schema, converted.fields, strict=True):
        comment = (field.metadata or {}).get(COMMENT_KEY)
        spark_field.metadata = {"comment": comment.decode()} if comment else {}
    return converted
