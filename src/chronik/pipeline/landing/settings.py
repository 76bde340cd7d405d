"""Settings of a landing: those of the pipeline, those in the topics' configs, and the lookup of the topics to land."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from chronik.client.access.settings import Bootstrap
from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.client.configs import TOPIC_RESOURCE
from chronik.errors import ConfigError
from chronik.formats.codec import WriterSchema
from chronik.formats.registry_client import RegistrySettings
from chronik.pipeline.table_maintenance.settings import (
    DEFAULT_MAINTENANCE,
    FILE_BYTES_CONFIG,
    MAINTENANCE_CONFIG,
    RETENTION_CONFIG,
    MaintenanceOptions,
)
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.parquet import CODEC
from chronik.pipeline.tables.partitioning import Partitioning, parse_partitioning
from chronik.pipeline.tables.topic_table import TableFormat, TableSpec
from chronik.pipeline.tables.values.data_format import JSON_VALUES, DataFormat, RecordFormat, check_record_format
from chronik.pipeline.tables.values.table_schema import TableSchema, parse_schema_json
from chronik.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

GROUP_PREFIX = "chronik-pipeline-"

ROUND_RECORDS_MAX = 10_000_000
"""Maximum records per topic and round. It limits the work repeated after a crash, and does not affect memory use."""

ROUND_INTERVAL_SECONDS = 10.0
"""Time between the starts of two rounds when nothing is left to land.

Each round writes its own files, and few large files are read faster than many small ones. Queries read records that
have not landed from the brokers.
"""

ENABLED_CONFIG, FORMAT_CONFIG, PARTITION_BY_CONFIG = "columnar.enabled", "columnar.format", "columnar.partition.by"
SCHEMA_CONFIG = "columnar.schema"
TABLE_CONFIG = "columnar.table"
KEY_FORMAT_CONFIG, WRITER_SCHEMA_CONFIG = "columnar.key.format", "columnar.writer.schema"

Configs = dict[str, str]


AUTO = "auto"
"""Name of the format of tables whose format is decided from a sample of the records."""


@dataclass(frozen=True, slots=True)
class TableSettings:
    """The formats and partitioning requested for a table. None means that a fallback or the default applies."""

    kind: TableKind | None = None
    partitioning: Partitioning | None = None
    value_format: DataFormat | None = None
    key_format: DataFormat | None = None
    value_schema: WriterSchema | None = None
    """The schema of values that do not name theirs."""
    key_schema: WriterSchema | None = None
    is_auto: bool | None = None
    """Whether the format of values is decided from a sample of the records when the table is created."""
    has_auto_keys: bool | None = None
    table_format: TableFormat | None = None

    def with_fallback(self, other: TableSettings) -> TableSettings:
        """Return these settings, with those of `other` where nothing is requested."""
        names = ["partitioning", "table_format"]
        if self.kind is None and not self.is_auto:
            names += ["kind", "value_format", "value_schema", "is_auto"]
        elif self.kind is TableKind.DECODED and self.value_format is None:
            names += ["value_format", "value_schema"]
        elif self.value_format is other.value_format and self.value_schema is None:
            names.append("value_schema")
        if self.key_format is None and not self.has_auto_keys:
            names += ["key_format", "key_schema", "has_auto_keys"]
        elif self.key_format is other.key_format and self.key_schema is None:
            names.append("key_schema")
        inherited = {name: getattr(other, name) for name in names if getattr(self, name) is None}
        return replace(self, **inherited)

    def build_format(self) -> RecordFormat:
        """Return the formats of the records of a table with these settings.

        Raises:
            ConfigError: A table cannot have them.
        """
        key = self.key_format or DataFormat.RAW
        if self.kind is TableKind.RAW:
            check_record_format(RecordFormat(DataFormat.RAW, key))
            return JSON_VALUES
        return check_record_format(
            RecordFormat(self.value_format or DataFormat.JSON, key, self.value_schema, self.key_schema)
        )


DEFAULT_TABLE_SETTINGS = TableSettings(TableKind.RAW, Partitioning.DATE, table_format=TableFormat.DELTA)


def build_table_settings(spec: TableSpec) -> TableSettings:
    """Return the settings of an existing table."""
    if spec.kind is TableKind.RAW:
        return TableSettings(spec.kind, spec.partitioning, table_format=spec.table_format)
    format = spec.format
    return TableSettings(
        spec.kind,
        spec.partitioning,
        format.value,
        format.key,
        format.value_schema,
        format.key_schema,
        table_format=spec.table_format,
    )


EARLIEST, LATEST = "earliest", "latest"
OFFSET_PREFIX = "offset:"


@dataclass(frozen=True, slots=True)
class StartPosition:
    """The position in the topic at which a new table starts: the earliest records unless one of the fields is set."""

    timestamp_ms: int | None = None
    """Timestamp in milliseconds: the table starts at the first record with this or a later timestamp."""
    offset: int | None = None
    """Offset at which the table starts in every partition."""
    is_latest: bool = False
    """Whether the table starts at the end of the topic, so that only records produced later are landed."""


@dataclass(frozen=True, slots=True)
class LandingSettings:
    """Settings of a pipeline that lands topics, that is, writes them to tables."""

    bootstrap: Bootstrap
    table_root: str
    topics: tuple[str, ...] | None = None
    """Topics to land, or None for every topic with `columnar.enabled`, including topics that enable it later."""
    table_settings: TableSettings = TableSettings()
    group: str = ""
    """Name of the pipeline, and of the consumer group to which the landed offsets are committed."""
    round_records_max: int = ROUND_RECORDS_MAX
    interval_s: float = ROUND_INTERVAL_SECONDS
    allow_data_loss: bool = False
    codec: str = CODEC
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    """Options of the object store; they may contain credentials."""
    schema: TableSchema | None = None
    """Declared schema of the tables; None for that of the topic's config, else of the existing table."""
    start: Mapping[str, StartPosition] = field(default_factory=dict)
    """Where a new table starts, by topic; the empty name stands for all other topics."""
    registry: RegistrySettings | None = None
    """The schema registry; None for that of the brokers."""
    maintenance: MaintenanceOptions = DEFAULT_MAINTENANCE


def parse_schema_from_configs(configs: Mapping[str, str]) -> TableSchema | None:
    """Return the declared schema in a topic's configs, or None if there is none.

    Raises:
        ConfigError: The schema is invalid.
    """
    text = configs.get(SCHEMA_CONFIG)
    if not text:
        return None
    try:
        return parse_schema_json(text)
    except ConfigError as error:
        raise ConfigError(f"{SCHEMA_CONFIG}: {error}") from None


def parse_table_settings_from_configs(configs: Mapping[str, str]) -> TableSettings:
    """Return the table settings in a topic's configs.

    Raises:
        ConfigError: A config has an unknown value.
    """
    return parse_table_settings(
        configs.get(FORMAT_CONFIG) or None,
        configs.get(PARTITION_BY_CONFIG) or None,
        configs.get(KEY_FORMAT_CONFIG) or None,
        configs.get(WRITER_SCHEMA_CONFIG) or None,
        configs.get(TABLE_CONFIG) or None,
        names=(FORMAT_CONFIG, PARTITION_BY_CONFIG, KEY_FORMAT_CONFIG, WRITER_SCHEMA_CONFIG, TABLE_CONFIG),
    )


def parse_table_settings(
    format: str | None,
    partition_by: str | None = None,
    key_format: str | None = None,
    writer_schema: str | None = None,
    table_format: str | None = None,
    *,
    names: tuple[str, str, str, str, str] = (
        "format",
        "partition_by",
        "key_format",
        "writer_schema",
        "table_format",
    ),
) -> TableSettings:
    """Parse table settings; `names` are the names of the options in error messages.

    Raises:
        ConfigError: A value is unknown.
    """
    value = _parse_format(format, (*DataFormat, AUTO), names[0])
    key = _parse_format(key_format, (*DataFormat, AUTO), names[2])
    kind = None if value is None else TableKind.RAW if value is DataFormat.RAW else TableKind.DECODED
    schema = None
    if writer_schema is not None:
        written_with = None if value is None else value.value_format
        if written_with is None:
            raise ConfigError(f"{names[3]} needs {names[0]} = avro, protobuf or json-schema")
        schema = WriterSchema(written_with, writer_schema)
    return TableSettings(
        kind,
        None if partition_by is None else _parse_partitioning(partition_by, names[1]),
        value,
        key,
        schema,
        is_auto=True if _is_auto(format) else None,
        has_auto_keys=True if _is_auto(key_format) else None,
        table_format=None if table_format is None else _parse_table_format(table_format, names[4]),
    )


def _parse_table_format(text: str, name: str) -> TableFormat:
    try:
        return TableFormat(text.strip().lower())
    except ValueError:
        raise ConfigError(f"invalid {name} = {text!r}: expected {' or '.join(TableFormat)}") from None


def _is_auto(format: str | None) -> bool:
    return format is not None and format.strip().lower() == AUTO


def _parse_format(format: str | None, known: Sequence[str], name: str) -> DataFormat | None:
    """Parse the name of a format; None if there is none or it is decided later."""
    if format is None:
        return None
    text = format.strip().lower()
    if text not in known:
        raise ConfigError(f"invalid {name} = {format!r}: expected {', '.join(known[:-1])} or {known[-1]}")
    return None if text == AUTO else DataFormat(text)


def is_landing_enabled(configs: Mapping[str, str]) -> bool:
    return configs.get(ENABLED_CONFIG, "").strip().lower() == "true"


def _parse_partitioning(text: str, name: str) -> Partitioning:
    try:
        return parse_partitioning(text)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None


def derive_group_name(root: str) -> str:
    """Return the default name of a pipeline: the last component of a directory, or all of an object store's prefix."""
    _, is_object_store, prefix = root.rstrip("/").partition("://")
    name = prefix if is_object_store else root.rstrip("/").rsplit("/", 1)[-1]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-")
    return f"{GROUP_PREFIX}{name or 'tables'}"


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic's current id and landing configs."""

    name: str
    topic_id: str
    configs: Configs


def list_enabled_topics(cluster: ClusterClient) -> list[str]:
    """Return the names of topics with `columnar.enabled`.

    Raises:
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
    """
    response = cluster.retry(lambda: cluster.metadata(None))
    names = sorted(topic.name for topic in response.topics if topic.name and not topic.is_internal)
    configs = cluster.retry(lambda: _fetch_landing_configs(cluster, names))
    return [name for name in names if is_landing_enabled(configs.get(name, {}))]


def fetch_topic_configs(cluster: ClusterClient, name: str) -> Configs:
    """Return the landing configs of a topic.

    Raises:
        ClientError: No broker responds.
        KafkaError: The topic does not exist, or a broker rejects a request.
    """
    return cluster.retry(lambda: _fetch_landing_configs(cluster, [name])).get(name, {})


def _fetch_landing_configs(cluster: ClusterClient, names: Sequence[str]) -> dict[str, Configs]:
    """Return the landing configs of topics; empty on other Kafka brokers, which do not have them."""
    if not names:
        return {}
    request = DescribeConfigsRequest(resources=[_build_topic_resource(name) for name in names])
    response = cluster.any_broker().request(request, DescribeConfigsResponse)
    found: dict[str, Configs] = {}
    for result in response.results:
        raise_for_code(result.error_code, f"topic {result.resource_name}", result.error_message)
        found[result.resource_name] = _drop_null_configs((config.name, config.value) for config in result.configs)
    return found


def _build_topic_resource(name: str) -> DescribeConfigsResource:
    keys = [
        ENABLED_CONFIG,
        FORMAT_CONFIG,
        PARTITION_BY_CONFIG,
        SCHEMA_CONFIG,
        KEY_FORMAT_CONFIG,
        WRITER_SCHEMA_CONFIG,
        TABLE_CONFIG,
        MAINTENANCE_CONFIG,
        FILE_BYTES_CONFIG,
        RETENTION_CONFIG,
    ]
    return DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=keys)


def _drop_null_configs(configs: Iterable[tuple[str, str | None]]) -> Configs:
    return {name: value for name, value in configs if value is not None}
