"""The decision about the format of a topic's keys and values, from a sample of its records and the schema registry.

A table keeps the decision. Records that name schemas that the registry has are in the format of these schemas. Other
values are JSON if nearly all of them are JSON objects, and otherwise raw bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

import pyarrow as pa

from chronik.client.cluster import ClusterClient
from chronik.errors import ChronikError
from chronik.formats.codec import UnsupportedSchemaError
from chronik.formats.framing import SchemaKey, split_frames
from chronik.formats.registry_client import (
    RegistryClient,
    RegistrySettings,
    SchemaUnknownError,
    get_registry_client,
)
from chronik.pipeline.landing.sampling import sample_records
from chronik.pipeline.landing.settings import LandingSettings, TableSettings
from chronik.pipeline.records.columns import RecordColumns
from chronik.pipeline.registry_access import find_registry
from chronik.pipeline.source.offset_resolver import OffsetResolver
from chronik.pipeline.source.options import IsolationLevel, ReadSettings
from chronik.pipeline.tables.commit_plan import PartitionRange
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.values.data_format import DataFormat
from chronik.pipeline.tables.values.field_statistics import MAJORITY
from chronik.pipeline.tables.values.json_decoder import JsonDecoder
from chronik.pipeline.tables.values.table_schema import INFERRED

DECISION_RECORDS_MAX: Final = 1000
"""Maximum number of records from which the format is decided."""


class FormatUndecidedError(ChronikError):
    """The format is decided from the records of the topic, but there are none."""


def replace_auto_formats(settings: TableSettings, decided: TableSettings) -> TableSettings:
    """Return settings with the decided formats where they are not set."""
    if settings.is_auto:
        settings = replace(
            settings,
            kind=decided.kind,
            value_format=decided.value_format,
            value_schema=decided.value_schema,
            is_auto=None,
        )
    if settings.has_auto_keys:
        key_format = decided.key_format if settings.kind is TableKind.DECODED else DataFormat.RAW
        settings = replace(settings, key_format=key_format, has_auto_keys=None)
    return settings


def count_value_formats(records: Iterable[RecordColumns], registry: RegistrySettings | None) -> FormatVotes:
    """Count the formats of the values of records.

    Raises:
        RegistryUnavailableError, RegistryRequestError: The registry does not say which schemas it has.
    """
    votes = FormatVotes(_LazyRegistry(lambda: registry), is_key=False)
    for each in records:
        votes.add(each)
    return votes


def decide_formats(settings: LandingSettings, topic: str, cluster: ClusterClient) -> TableSettings:
    """Decide the formats of a topic's keys and values from a sample of its records.

    Raises:
        FormatUndecidedError: There are no keys or values.
        RegistryUnavailableError, RegistryRequestError: The registry does not say which schemas it has.
        ClientError, KafkaError: The topic cannot be read.
    """
    offsets = OffsetResolver(cluster, IsolationLevel.READ_COMMITTED)
    ends = offsets.fetch_latest_offsets(cluster.retry(lambda: cluster.partitions(topic)))
    starts = offsets.fetch_earliest_offsets(ends)
    ranges = [PartitionRange(each.partition, starts[each], end) for each, end in ends.items() if starts[each] < end]
    read = ReadSettings(settings.bootstrap, isolation=IsolationLevel.READ_COMMITTED)
    registry = _LazyRegistry(lambda: find_registry(settings.registry, cluster))
    values = FormatVotes(registry, is_key=False)
    keys = FormatVotes(registry, is_key=True)
    for records in list(sample_records(topic, ranges, read, DECISION_RECORDS_MAX)):
        values.add(records)
        keys.add(records)
    if not values.count:
        raise FormatUndecidedError(f"topic {topic} has no values from which its format could be decided")
    value_format = values.decide()
    kind = TableKind.RAW if value_format is DataFormat.RAW else TableKind.DECODED
    return TableSettings(kind, value_format=value_format, key_format=keys.decide())


class _LazyRegistry:
    """A client of the registry, which is only looked for if values seem to name schemas."""

    def __init__(self, find: Callable[[], RegistrySettings | None]) -> None:
        self._find = find
        self._client: RegistryClient | None = None
        self._is_found = False

    def get(self) -> RegistryClient | None:
        """Return the registry, or None if there is none: then bytes only look as if they named a schema."""
        if not self._is_found:
            found, self._is_found = self._find(), True
            self._client = None if found is None else get_registry_client(found)
        return self._client


class FormatVotes:
    """Counts of the formats of keys or values."""

    def __init__(self, registry: _LazyRegistry, *, is_key: bool) -> None:
        self._registry = registry
        self._is_key = is_key
        self._votes: Counter[DataFormat] = Counter()
        self._others: list[bytes] = []
        self.count = 0
        self.unknown_schemas: Counter[SchemaKey] = Counter()
        """Schemas that records seem to name, but that the registry does not have or that are not supported."""

    def add(self, records: RecordColumns) -> None:
        """Count the formats of keys or values."""
        values, headers = records.key if self._is_key else records.value, records.headers
        assert values is not None, "keys and values are read"
        self.count += len(values) - values.null_count
        split = split_frames(values, headers, is_key=self._is_key)
        registry = self._registry.get() if split.groups else None
        if registry is not None:
            registry.prefetch_schemas(group.schema for group in split.groups)
        for group in split.groups:
            rows = group.rows.tolist()
            try:
                schema = None if registry is None else registry.fetch_schema(group.schema)
            except (SchemaUnknownError, UnsupportedSchemaError):
                schema = None
            if schema is None:
                self.unknown_schemas[group.schema] += len(rows)
                self._add_others(values, rows)
            else:
                self._votes[DataFormat(schema.format.value)] += len(rows)
        self._add_others(values, split.errors)

    def _add_others(self, values: pa.BinaryArray, rows: Iterable[int]) -> None:
        self._others += [values[row].as_py() for row in rows]

    @property
    def has_json(self) -> bool:
        """Whether some values are JSON objects, once the format has been decided."""
        return self._votes[DataFormat.JSON] > 0

    def decide(self) -> DataFormat:
        """Return the format that enough of the values have, or raw."""
        if self._others:
            decoded = JsonDecoder(INFERRED, pa.schema([])).decode(self._others)
            self._votes[DataFormat.JSON] += len(self._others) - len(decoded.errors)
            self._others.clear()
        for format, count in self._votes.most_common(1):
            if count >= MAJORITY * self.count:
                return format
        return DataFormat.RAW
