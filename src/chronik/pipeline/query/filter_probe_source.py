"""A Python data source without rows that records the filters that Spark pushes down to it.

Spark creates the reader in a Python process next to its driver, which writes the filters of each reference to a file in
the directory of the option `directory`.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from chronik.pipeline.query.conditions import Conjunction, convert_spark_filters

SOURCE_NAME: Final = "chronik_filter_probe"

DIRECTORY_OPTION: Final = "directory"
VIEW_OPTION: Final = "view"
"""Option with the number of the view, from which the names of its files start."""


class FilterProbeSource(DataSource):  # type: ignore[misc]
    """The data source of the views with which a statement is planned."""

    @classmethod
    def name(cls) -> str:
        return SOURCE_NAME

    def reader(self, schema: Any) -> DataSourceReader:
        return FilterProbeReader(Path(self.options[DIRECTORY_OPTION]), int(self.options[VIEW_OPTION]))


class FilterProbeReader(DataSourceReader):  # type: ignore[misc]
    """A reader that records filters and returns no rows."""

    def __init__(self, directory: Path, view: int) -> None:
        self._directory = directory
        self._view = view

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802
        """Record the filters of one reference to the view."""
        written = self._directory / f"{uuid.uuid4()}.new"
        written.write_bytes(pickle.dumps(convert_spark_filters(filters)))
        written.rename(self._directory / f"{self._view}-{written.stem}")
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return iter(())


def read_recorded_filters(directory: Path, view: int) -> list[Conjunction]:
    """Return the recorded filters of each reference to a view."""
    return [pickle.loads(path.read_bytes()) for path in sorted(directory.glob(f"{view}-*"))]
