"""Options of the source and the sink: those of Spark's Kafka source, with the same names, and some of Chronik's own.

    bootstrap.servers              or kafka.bootstrap.servers: HOST:PORT, several separated by commas
    subscribe | subscribePattern | assign                            the partitions to read: set exactly one of them
    startingOffsets, startingOffsetsByTimestamp, startingTimestamp   where reading starts; the last one listed wins
    endingOffsets, endingOffsetsByTimestamp, endingTimestamp         where reading ends (batch queries only)
    startingOffsetsByTimestampStrategy       if no record is at or after the timestamp: error or latest
    maxOffsetsPerTrigger, minOffsetsPerTrigger, maxTriggerDelay      the size of a micro-batch
    minPartitions, maxRecordsPerPartition    split ranges so that more tasks read them
    failOnDataLoss                 true (default): deleted records fail the query; false: the query skips them
    includeHeaders                 whether there is a column `headers`
    kafkaConsumer.pollTimeoutMs    how long a task waits for records that should be available
    columns                        names of the columns to read; the others are not decoded
    isolationLevel                 or kafka.isolation.level: read_uncommitted (default, as in Kafka) or read_committed
    groupId                        or kafka.group.id: the group that a stream commits its offsets to, for lag monitoring
    kafka.security.protocol, kafka.sasl.…, kafka.ssl.…   security: Kafka's client settings, certificates as PEM
    clientConfig                   a client config file with these settings, see `client_config`
    transport, segmentDirs         fetch (default), or segments: read the brokers' data directories
    keyFormat, valueFormat, …      decode keys and values, see `typed_options`

Option names are case-insensitive, as in Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import Final

from chronik.client.access.settings import (
    PLAINTEXT_SECURITY,
    SECURITY_SETTINGS,
    Bootstrap,
    BootstrapAccess,
    parse_security,
)
from chronik.client.errors import ClientError
from chronik.client.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from chronik.client.records import TopicPartition
from chronik.pipeline.errors import OptionError
from chronik.pipeline.source.offset_ranges import Offsets, offsets_from_json
from chronik.pipeline.source.option_names import (
    PREFIX,
    check_source_option_names,
    is_unsupported_security_config,
    log_ineffective_source_options,
)
from chronik.pipeline.source.raw_options import RawOptions
from chronik.pipeline.source.typed_options import (
    RegistryResolver,
    TypedColumns,
    parse_mode_options,
    resolve_typed_columns,
)

COLUMN_NAMES: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")

POLL_TIMEOUT_MS: Final = 120_000
"""Default of kafkaConsumer.pollTimeoutMs: Spark's network timeout."""

MAX_TRIGGER_DELAY_S: Final = 15 * 60.0

SEGMENT_DIRS_SEPARATOR: Final = ","

_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class IsolationLevel(IntEnum):
    """Kafka's isolation levels, with their protocol values."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Transport(StrEnum):
    """The way in which a task reads an offset range: Fetch requests, or segment files in a data directory."""

    FETCH = "fetch"
    SEGMENTS = "segments"


@dataclass(frozen=True)
class Subscription:
    """The topics, topic pattern or partitions that a query reads; exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True)
class OffsetBound:
    """The start or end of a read: one position for all partitions, or an offset for each partition."""

    sentinel: int | None = None
    """EARLIEST or LATEST, for all partitions."""
    offsets: tuple[tuple[TopicPartition, int], ...] | None = None
    """Offset of each partition; EARLIEST and LATEST are allowed."""
    timestamp_ms: int | None = None
    timestamps_ms: tuple[tuple[TopicPartition, int], ...] | None = None

    def option_name(self, side: str) -> str:
        """Return the name of the option that sets this bound; `side` is `starting` or `ending`."""
        if self.timestamp_ms is not None:
            return f"{side}Timestamp"
        return f"{side}Offsets" if self.timestamps_ms is None else f"{side}OffsetsByTimestamp"


@dataclass(frozen=True)
class ReadSettings:
    """The settings that a Spark task needs to read an offset range from a partition."""

    bootstrap: Bootstrap
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    fail_on_data_loss: bool = True
    poll_timeout_s: float = POLL_TIMEOUT_MS / 1000
    columns: tuple[str, ...] = COLUMN_NAMES[:-1]
    transport: Transport = Transport.FETCH
    segment_dirs: tuple[str, ...] = ()
    typed: TypedColumns | None = None


@dataclass(frozen=True)
class SourceOptions:
    """The parsed options of a query on the source."""

    read: ReadSettings
    subscription: Subscription
    starting: OffsetBound
    ending: OffsetBound | None
    """The offset bound at which a batch query ends; None for a stream."""
    latest_if_no_timestamp: bool
    records_per_trigger_max: int | None
    records_per_trigger_min: int | None
    max_trigger_delay_s: float
    partitions_min: int | None
    records_per_partition_max: int | None
    group: str | None


def select_source_columns(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns of a query with these options.

    Raises:
        OptionError: The option `columns` names an unknown column or none.
    """
    given = RawOptions(options)
    named = given.get_str("columns")
    reports = parse_mode_options(given).report_columns
    if named is None:
        return (COLUMN_NAMES if given.get_bool("includeHeaders", False) else COLUMN_NAMES[:-1]) + reports
    available = COLUMN_NAMES + reports
    canonical_names = {name.lower(): name for name in available}
    wanted = [part.strip() for part in named.split(",") if part.strip()]
    unknown = [name for name in wanted if name.lower() not in canonical_names]
    if unknown or not wanted:
        raise OptionError(f"columns = {named!r}: expected some of {', '.join(available)}")
    return tuple(dict.fromkeys(canonical_names[name.lower()] for name in wanted))


def resolve_source_types(options: Mapping[str, str]) -> TypedColumns | None:
    """Fetch the schemas of the typed columns of a query with these options; None if there are none.

    Raises:
        OptionError: An option is invalid, or a schema does not exist.
        ChronikError: The registry or the brokers cannot be reached.
    """
    given = RawOptions(options)
    columns = parse_mode_options(given)
    if not columns.columns:
        return None
    subscription = _parse_subscription(given)
    topics = {partition.topic for partition in subscription.partitions} | set(subscription.topics)
    registry = RegistryResolver(given, lambda: parse_bootstrap_servers(options))
    return resolve_typed_columns(columns, registry, sorted(topics))


def parse_source_options(
    options: Mapping[str, str], *, streaming: bool, typed: TypedColumns | None = None
) -> SourceOptions:
    """Parse the options of a batch or streaming query; `typed` are its typed columns from `resolve_source_types`.

    Raises:
        OptionError: An option is invalid; the message names it and the expected value.
    """
    check_source_option_names(options)
    given = RawOptions(options)
    starting = _parse_offset_bound(given, "starting", "latest" if streaming else "earliest")
    ending = _parse_ending_bound(given, streaming)
    if ending is not None:
        _check_sentinels(starting, "startingOffsets", LATEST_TIMESTAMP, "a batch query would read nothing")
        _check_sentinels(ending, "endingOffsets", EARLIEST_TIMESTAMP, "the query would read nothing; set a later end")
        _check_bounds(starting, ending)
    parsed = SourceOptions(
        read=replace(_parse_read_settings(given, select_source_columns(options)), typed=typed),
        subscription=_parse_subscription(given),
        starting=starting,
        ending=ending,
        latest_if_no_timestamp=given.get_choice("error", ("error", "latest"), "startingOffsetsByTimestampStrategy")
        == "latest",
        records_per_trigger_max=given.get_int("maxOffsetsPerTrigger"),
        records_per_trigger_min=given.get_int("minOffsetsPerTrigger"),
        max_trigger_delay_s=_parse_duration_s(given, "maxTriggerDelay", MAX_TRIGGER_DELAY_S),
        partitions_min=given.get_int("minPartitions"),
        records_per_partition_max=given.get_int("maxRecordsPerPartition"),
        group=given.get_str("groupId", "kafka.group.id"),
    )
    least, most = parsed.records_per_trigger_min, parsed.records_per_trigger_max
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger = {least} is greater than maxOffsetsPerTrigger = {most}")
    log_ineffective_source_options(options, streaming=streaming)
    return parsed


def parse_bootstrap_servers(options: Mapping[str, str]) -> Bootstrap:
    """Return the bootstrap servers with their security settings.

    Raises:
        OptionError: `bootstrap.servers` is missing, or a security option is invalid.
    """
    given = {name.lower(): value for name, value in options.items()}
    servers = RawOptions(given).get_str("bootstrap.servers", "kafka.bootstrap.servers")
    if not servers:
        raise OptionError("bootstrap.servers is missing: set it to HOST:PORT of a broker, or several with commas")
    configs = {name.removeprefix(PREFIX): value for name, value in given.items() if name.startswith(PREFIX)}
    for name in filter(is_unsupported_security_config, configs):
        raise OptionError(
            f"option {PREFIX}{name} is not supported: ignoring a security setting could weaken security; remove the"
            f" option, or use one of {', '.join(PREFIX + each for each in sorted(SECURITY_SETTINGS))}"
        )
    settings = {name: value for name, value in configs.items() if name in SECURITY_SETTINGS}
    try:
        security = parse_security(settings)
    except ClientError as error:
        raise OptionError(f"kafka.{error}") from None
    return servers if security == PLAINTEXT_SECURITY else BootstrapAccess(servers, security)


def _parse_read_settings(given: RawOptions, columns: tuple[str, ...]) -> ReadSettings:
    level = given.get_choice(
        "read_uncommitted", ("read_uncommitted", "read_committed"), "isolationLevel", "kafka.isolation.level"
    )
    transport = Transport(given.get_choice("fetch", tuple(Transport), "transport"))
    dirs = tuple(part.strip() for part in (given.get_str("segmentDirs") or "").split(SEGMENT_DIRS_SEPARATOR) if part)
    if transport is Transport.SEGMENTS and not dirs:
        raise OptionError("segmentDirs is missing: transport = segments reads the data directories named there")
    return ReadSettings(
        bootstrap=parse_bootstrap_servers(given.by_name),
        isolation=IsolationLevel[level.upper()],
        fail_on_data_loss=given.get_bool("failOnDataLoss", True),
        poll_timeout_s=(given.get_int("kafkaConsumer.pollTimeoutMs") or POLL_TIMEOUT_MS) / 1000,
        columns=columns,
        transport=transport,
        segment_dirs=dirs,
    )


def _parse_subscription(given: RawOptions) -> Subscription:
    names = ("subscribe", "subscribePattern", "assign")
    if sum(given.get_str(name) is not None for name in names) != 1:
        path = given.get_str("path")
        hint = "" if path is None else f"; the path {path!r} is not used, subscribe names topics"
        raise OptionError(f"no topics to read: set exactly one of subscribe, subscribePattern and assign{hint}")
    if (listed := given.get_str("subscribe")) is not None:
        topics = tuple(part.strip() for part in listed.split(",") if part.strip())
        if not topics:
            raise OptionError("subscribe names no topic")
        return Subscription(topics=topics)
    if (pattern := given.get_str("subscribePattern")) is not None:
        pattern = pattern.strip()
        if not pattern:
            raise OptionError("subscribePattern = '': the pattern is empty")
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError(f"subscribePattern = {pattern!r}: {error}") from None
        return Subscription(pattern=pattern)
    return Subscription(partitions=_parse_assigned_partitions(given))


def _parse_assigned_partitions(given: RawOptions) -> tuple[TopicPartition, ...]:
    shape = '{"topic": [0, 1]}'
    assigned = given.get_json("assign", shape)
    if not isinstance(assigned, dict) or not assigned:
        raise OptionError(f"assign: expected JSON like {shape}")
    partitions = []
    for topic, indexes in assigned.items():
        if not isinstance(indexes, list) or not all(type(index) is int and index >= 0 for index in indexes):
            raise OptionError(f"assign: topic {topic!r} has {indexes!r}, expected JSON like {shape}")
        partitions += [TopicPartition(topic, index) for index in indexes]
    if not partitions:
        raise OptionError(f"assign = {given.get_str('assign')!r}: no partition to read; expected JSON like {shape}")
    return tuple(partitions)


def _parse_ending_bound(given: RawOptions, streaming: bool) -> OffsetBound | None:
    if not streaming:
        return _parse_offset_bound(given, "ending", "latest")
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if given.get_str(name) is not None:
            raise OptionError(f"{name} is for batch queries only: a stream has no end")
    return None


def _check_sentinels(bound: OffsetBound, name: str, rejected: int, reason: str) -> None:
    """Reject `latest` as the start and `earliest` as the end of a batch query, as Spark's Kafka source does."""
    word = "latest" if rejected == LATEST_TIMESTAMP else "earliest"
    if bound.sentinel == rejected:
        raise OptionError(f"{name} = {word}: {reason}")
    for partition, offset in bound.offsets or ():
        if offset == rejected:
            raise OptionError(f"{name}: {partition} = {offset} ({word}): {reason}")


def _check_bounds(starting: OffsetBound, ending: OffsetBound) -> None:
    """Reject bounds that contradict each other before the brokers are asked. Resolved offsets are checked later."""
    if starting.timestamp_ms is not None and ending.timestamp_ms is not None:
        if starting.timestamp_ms > ending.timestamp_ms:
            raise OptionError(
                f"startingTimestamp = {starting.timestamp_ms} is greater than endingTimestamp = {ending.timestamp_ms}"
            )
        return
    for kind, starts, ends in (
        ("offset", starting.offsets, ending.offsets),
        ("timestamp", starting.timestamps_ms, ending.timestamps_ms),
    ):
        if starts is not None and ends is not None:
            names = starting.option_name("starting"), ending.option_name("ending")
            _check_same_partitions(dict(starts), dict(ends), names)
            check_starts_before_ends(dict(starts), dict(ends), names, kind)


def _check_same_partitions(starts: Offsets, ends: Offsets, names: tuple[str, str]) -> None:
    sides = ((names[0], starts.keys() - ends.keys()), (names[1], ends.keys() - starts.keys()))
    problems = [f"{', '.join(map(str, sorted(only)))} only in {name}" for name, only in sides if only]
    if problems:
        raise OptionError(f"{' and '.join(names)} name different partitions: {'; '.join(problems)}")


def check_starts_before_ends(starts: Offsets, ends: Offsets, names: tuple[str, str], kind: str = "offset") -> None:
    """Check that no partition starts after its end; the sentinels for earliest and latest are not compared.

    Raises:
        OptionError: A partition starts after its end; the message names the options `names`.
    """
    for partition, start in sorted(starts.items()):
        end = ends[partition]
        if start > end and start >= 0 and end >= 0:
            raise OptionError(
                f"{partition}: the start {kind} {start} is greater than the end {kind} {end} ({', '.join(names)}): the "
                "query would read nothing; check the bounds, and whether the topic was deleted and created again"
            )


def _parse_offset_bound(given: RawOptions, side: str, default: str) -> OffsetBound:
    if given.get_str(f"{side}Timestamp") is not None:
        return OffsetBound(timestamp_ms=given.get_int(f"{side}Timestamp", 0))
    name = f"{side}OffsetsByTimestamp"
    if given.get_str(name) is not None:
        return OffsetBound(timestamps_ms=_parse_partition_offsets(given, name, 0))
    name = f"{side}Offsets"
    text = (given.get_str(name) or default).strip()
    if text.lower() in ("earliest", "latest"):
        return OffsetBound(sentinel=EARLIEST_TIMESTAMP if text.lower() == "earliest" else LATEST_TIMESTAMP)
    return OffsetBound(offsets=_parse_partition_offsets(given, name, EARLIEST_TIMESTAMP))


def _parse_partition_offsets(given: RawOptions, name: str, minimum: int) -> tuple[tuple[TopicPartition, int], ...]:
    shape = '{"topic": {"0": 23}}'
    found = given.get_json(name, shape)
    try:
        if not isinstance(found, dict):
            raise ValueError(f"expected JSON like {shape}")
        offsets: Offsets = offsets_from_json(found)
        if min(offsets.values(), default=minimum) < minimum:
            raise ValueError(f"offset {min(offsets.values())} is below {minimum}")
    except ValueError as error:
        raise OptionError(f"{name}: {error}") from None
    return tuple(offsets.items())


def _parse_duration_s(given: RawOptions, name: str, default: float) -> float:
    text = given.get_str(name)
    if text is None:
        return default
    match = re.fullmatch(r"(\d{1,19})\s*([a-z]*)", text.strip().lower())
    if match is None or (match[2] or "ms") not in _UNITS_S:
        raise OptionError(f"{name} = {text!r}: expected a duration such as 30s or 15m")
    return int(match[1]) * _UNITS_S[match[2] or "ms"]
