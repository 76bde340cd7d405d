"""Which columns a table should grow by, learned from the values that found no place in it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

import pyarrow as pa

from chronik.pipeline.tables.values.growth import plan_columns
from chronik.pipeline.tables.values.inference import infer_fields
from chronik.pipeline.tables.values.shaping import Object


class Growth:
    """The schema that a table would have with the columns that were missed so far. Values shaped by it are rescued only
    when they teach something new, or can never have a column."""

    def __init__(self, table: pa.Schema) -> None:
        self.schema = table
        self.wanted: tuple[pa.Field, ...] = ()
        """Those that the table could have. A value that does not fit a column of the table, or has a name that cannot
        be one, asks for nothing."""
        self._table = table
        self._fields: list[pa.Field] = []

    def learn(self, rescued: Iterable[Object | None]) -> None:
        found = infer_fields(rescued)
        if not found:
            return
        self._fields = joined_fields([self._fields, found])
        self.wanted = plan_columns(self._table, self._fields).added
        by_name = {field.name: field for field in (*self._table, *self.wanted)}
        self.schema = pa.schema(list(by_name.values()))


def joined_fields(lists: Iterable[Sequence[pa.Field]]) -> list[pa.Field]:
    """What several tasks ask for: whole and broken numbers are one type, objects have the fields of both; where they
    disagree otherwise, the first has the word."""
    joined: dict[str, pa.Field] = {}
    for field in (field for fields in lists for field in fields):
        known = joined.setdefault(field.name, field)
        if known != field:
            with suppress(pa.ArrowException):
                both = [pa.schema([known]), pa.schema([field])]
                joined[field.name] = pa.unify_schemas(both, promote_options="permissive").field(0)
    return list(joined.values())
