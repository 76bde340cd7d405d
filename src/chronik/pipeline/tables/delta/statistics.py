"""Statistics of data files in a Delta log, with bounds that hold for what the writers of Delta tables store.

Writers truncate timestamps to milliseconds, and delta-rs writes decimals as floating-point numbers.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from chronik.pipeline.tables.file_statistics import FileStatistics

EXACT_DECIMAL_DIGITS = 15
"""Maximum precision of decimals that a floating-point number in the log represents exactly."""

MILLISECOND = pa.scalar(1000, pa.duration("us"))


def read_file_statistics(actions: pa.Table, schema: pa.Schema, partition_by: tuple[str, ...]) -> FileStatistics:
    """Return the statistics in a table's add actions, as delta-rs returns them."""
    actions = actions.combine_chunks()
    rows = _get_array(actions, "num_records")
    lower, upper = _read_fields(actions, "min", schema), _read_fields(actions, "max", schema)
    null_counts = _read_fields(actions, "null_count", pa.schema([(field.name, pa.int64()) for field in schema]))
    for name, values in _read_fields(actions, "partition", schema).items():
        if name in partition_by:
            lower[name] = upper[name] = values
            null_counts[name] = pc.if_else(values.is_null(), rows, pa.scalar(0, pa.int64()))
    return FileStatistics(
        rows,
        lower={name: values for name, values in lower.items() if _is_exact(values.type)},
        upper={
            name: values if name in partition_by else _raise_truncated(values)
            for name, values in upper.items()
            if _is_exact(values.type)
        },
        null_counts=null_counts,
    )


def _get_array(actions: pa.Table, name: str) -> pa.Array:
    column = actions[name]
    return column.chunk(0) if column.num_chunks else pa.nulls(0, column.type)


def _read_fields(actions: pa.Table, name: str, schema: pa.Schema) -> dict[str, pa.Array]:
    """Return the fields of a struct column that have the type of the schema's column, each as an array."""
    if name not in actions.schema.names:
        return {}
    column = _get_array(actions, name)
    types = {field.name: field.type for field in schema}
    return {
        field.name: pc.struct_field(column, [index])
        for index, field in enumerate(column.type)
        if types.get(field.name) == field.type
    }


def _is_exact(data_type: pa.DataType) -> bool:
    return not pa.types.is_decimal(data_type) or data_type.precision <= EXACT_DECIMAL_DIGITS


def _raise_truncated(values: pa.Array) -> pa.Array:
    """Return upper bounds of timestamps that may have been truncated to milliseconds; others are unchanged."""
    if not pa.types.is_timestamp(values.type):
        return values
    limit = pa.scalar(2**63 - 1000, pa.int64())
    # Without a larger timestamp, the bound is unknown.
    known = pc.if_else(pc.less(values.cast(pa.int64()), limit), values, pa.scalar(None, values.type))
    return pc.add(known, MILLISECOND).cast(values.type)
