"""Names of the options of the source and the sink: unknown names are rejected, and options without effect are logged.

Spark passes names in lower case. Spark's own Kafka source ignores unknown names, so that a misspelled option changes
the result of a query without notice.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from chronik.client.access.settings import SECURITY_SETTINGS
from chronik.formats.registry_client import REGISTRY_SETTINGS
from chronik.pipeline.errors import OptionError
from chronik.pipeline.source.kafka_client_configs import KAFKA_CLIENT_CONFIGS
from chronik.wording import format_spelling_suggestion

logger = logging.getLogger("chronik.pipeline")

PREFIX: Final = "kafka."
"""Prefix of options that are configs of Kafka's clients."""

REGISTRY_OPTIONS: Final = (
    "schema.registry.url",
    *(f"schema.registry.{name}" for name in REGISTRY_SETTINGS),
)
"""Options of the schema registry, with the names of the settings of Confluent's clients."""

TYPED_OPTIONS: Final = tuple(
    side + name for side in ("key", "value") for name in ("Format", "Message", "Schema", "Subject")
)
"""Options of typed keys and values that the source and the sink have."""

SOURCE_OPTIONS: Final = (
    "assign",
    "bootstrap.servers",
    "clientConfig",
    "columns",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "groupId",
    "includeHeaders",
    "isolationLevel",
    "kafkaConsumer.pollTimeoutMs",
    "maxOffsetsPerTrigger",
    "maxRecordsPerPartition",
    "maxTriggerDelay",
    "minOffsetsPerTrigger",
    "minPartitions",
    "segmentDirs",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "subscribe",
    "subscribePattern",
    "transport",
    *TYPED_OPTIONS,
    "keyWriterSchema",
    "valueWriterSchema",
    "mode",
    *REGISTRY_OPTIONS,
)

SINK_OPTIONS: Final = (
    "bootstrap.servers",
    "checkpointLocation",
    "clientConfig",
    "compression",
    "epoch",
    "exactlyOnce",
    "queryName",
    "topic",
    "transactionTimeoutMs",
    "transactionalId",
    *TYPED_OPTIONS,
    "keySubjectNameStrategy",
    "valueSubjectNameStrategy",
    "autoRegisterSchemas",
    "schemaIdLocation",
    *REGISTRY_OPTIONS,
)
"""Options of the sink. Spark itself evaluates checkpointLocation and queryName, but also passes them to the sink."""

PATH_OPTIONS: Final = ("path", "paths")
"""Options that Spark adds for the argument of `load`, `save` and `start`. Spark's Kafka source ignores them, too."""

IGNORED_OPTIONS: Final = (
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "partition.metadata.cache.ttl.ms",
)
"""Options that configure the consumers of Spark's Kafka source. This source has no consumers and ignores them."""

OPTIONS_IGNORED_BY_SINK: Final = ("includeHeaders",)
"""Options that programs set for Spark's Kafka sink. Headers are written if there is a column `headers`."""

STREAM_OPTIONS: Final = ("groupId", "kafka.group.id", "maxOffsetsPerTrigger", "maxTriggerDelay", "minOffsetsPerTrigger")
"""Source options that have no effect in batch queries."""

EXACTLY_ONCE_OPTIONS: Final = ("kafka.transaction.timeout.ms", "transactionTimeoutMs")
"""Sink options that have no effect unless rows are written exactly once."""

SOURCE_CONFIGS: Final = frozenset({"bootstrap.servers", "group.id", "isolation.level"})
"""Kafka configs that the source evaluates, in addition to security settings."""

SINK_CONFIGS: Final = frozenset({"bootstrap.servers", "compression.type", "transaction.timeout.ms"})
"""Kafka configs that the sink evaluates, in addition to security settings."""

_CLASS_HINT: Final = "use DataFrame operations such as CAST({0} AS STRING) instead"

REJECTED_BY_SOURCE: Final = {
    "kafka.auto.offset.reset": "set startingOffsets to earliest or latest; a restarted stream continues from its"
    " checkpoint",
    "kafka.key.deserializer": f"keys are read as bytes; {_CLASS_HINT.format('key')}",
    "kafka.value.deserializer": f"values are read as bytes; {_CLASS_HINT.format('value')}",
    "kafka.enable.auto.commit": "set groupId to commit the offsets of a stream to a consumer group",
    "kafka.interceptor.classes": "interceptors are Java classes that may change records",
}
"""Kafka configs that Spark's Kafka source rejects as well, with what to do instead."""

REJECTED_BY_SINK: Final = {
    "kafka.key.serializer": f"keys are written as bytes; {_CLASS_HINT.format('key')}",
    "kafka.value.serializer": f"values are written as bytes; {_CLASS_HINT.format('value')}",
    "kafka.transactional.id": "set transactionalId, and exactlyOnce=true for a batch",
}
"""Kafka configs that the sink cannot honour. Spark's Kafka sink rejects the serializers, too."""

_FOR_WRITES: Final = {
    "topic": "; to read a topic, set subscribe",
    "checkpointlocation": ": set it on writeStream",
    "queryname": ": set it on writeStream",
}
_FOR_READS: Final = {"subscribe": "; to write to a topic, set topic"}

_TUNING_SUFFIXES: Final = (".ms", ".seconds", ".jitter", ".factor")
"""Suffixes of security configs that set times: ignoring them does not weaken security."""


class _OptionNames(NamedTuple):
    """The option names that the source or the sink accepts, ignores or rejects."""

    name: str
    options: tuple[str, ...]
    ignored: tuple[str, ...]
    configs: frozenset[str]
    rejected: Mapping[str, str]
    other_options: tuple[str, ...]
    other_purpose: str
    other_hints: Mapping[str, str]

    @property
    def known(self) -> dict[str, str]:
        """The accepted names in lower case, each with its usual spelling."""
        configs = [PREFIX + config for config in KAFKA_CLIENT_CONFIGS | SECURITY_SETTINGS]
        names = [*self.options, *self.ignored, *PATH_OPTIONS, *configs]
        return {name.lower(): name for name in names if name not in self.rejected}


_SOURCE: Final = _OptionNames(
    "source", SOURCE_OPTIONS, IGNORED_OPTIONS, SOURCE_CONFIGS, REJECTED_BY_SOURCE, SINK_OPTIONS, "writes", _FOR_WRITES
)
_SINK: Final = _OptionNames(
    "sink", SINK_OPTIONS, OPTIONS_IGNORED_BY_SINK, SINK_CONFIGS, REJECTED_BY_SINK, SOURCE_OPTIONS, "reads", _FOR_READS
)


def check_source_option_names(names: Iterable[str]) -> None:
    """Check the names of the options of a query that reads.

    Raises:
        OptionError: An option is unknown or not supported; the message names it and suggests another one.
    """
    _check_names(names, _SOURCE)


def check_sink_option_names(names: Iterable[str]) -> None:
    """Check the names of the options of a query that writes.

    Raises:
        OptionError: An option is unknown or not supported; the message names it and suggests another one.
    """
    _check_names(names, _SINK)


def log_ineffective_source_options(names: Iterable[str], *, streaming: bool) -> None:
    """Log the options of a query that the source accepts but does not evaluate."""
    _log_ineffective_options(names, _SOURCE, () if streaming else STREAM_OPTIONS)


def log_ineffective_sink_options(names: Iterable[str], *, exactly_once: bool) -> None:
    """Log the options of a query that the sink accepts but does not evaluate."""
    _log_ineffective_options(names, _SINK, () if exactly_once else EXACTLY_ONCE_OPTIONS)


def is_unsupported_security_config(config: str) -> bool:
    """Return whether a Kafka config concerns security and Chronik's client cannot honour it."""
    return (
        config.startswith(("sasl.", "ssl.", "security."))
        and config not in SECURITY_SETTINGS
        and not (config.startswith("sasl.") and config.endswith(_TUNING_SUFFIXES))
    )


def _check_names(names: Iterable[str], side: _OptionNames) -> None:
    lowered = [name.lower() for name in names]
    if "provider" in lowered:  # Spark passes the properties of a table, and none of its options when it is read
        raise OptionError(
            "CREATE TABLE … USING chronik is not supported: Spark does not pass the options of such a table to the"
            " source; use CREATE TEMPORARY VIEW … USING chronik OPTIONS (…)"
        )
    known = side.known
    for name in lowered:
        if name not in known:
            raise OptionError(_describe_rejected_name(name, side, known))


def _describe_rejected_name(name: str, side: _OptionNames, known: Mapping[str, str]) -> str:
    if name in side.rejected:
        return f"option {name} is not supported: {side.rejected[name]}"
    if name == "__clustering_columns":
        return "clusterBy is not supported: a topic has no clustering columns"
    others = {option.lower(): option for option in side.other_options}
    if name in others:
        return f"option {others[name]} is for {side.other_purpose}{side.other_hints.get(name, '')}"
    if PREFIX + name in known:
        suggestion = f"; did you mean {PREFIX + name!r}?"
    else:
        suggestion = format_spelling_suggestion(name, _list_similar_candidates(name, known))
    known_options = f"; known options: {', '.join(side.options)}, and {PREFIX}… for the configs of Kafka's clients"
    return f"unknown option {name!r} of the chronik {side.name}{suggestion or known_options}"


def _list_similar_candidates(name: str, known: Mapping[str, str]) -> list[str]:
    """Return the known names with the same prefix, so that `kafka.` alone does not make all configs similar."""
    return [each for each in known.values() if each.startswith(PREFIX) == name.startswith(PREFIX)]


def _log_ineffective_options(names: Iterable[str], side: _OptionNames, ineffective: Collection[str]) -> None:
    known = side.known
    configs = side.configs | SECURITY_SETTINGS
    ignored = {name.lower() for name in (*side.ignored, *ineffective)}
    found = [
        known[name]
        for name in sorted(each.lower() for each in names)
        if name in ignored or (name.startswith(PREFIX) and name.removeprefix(PREFIX) not in configs)
    ]
    if found:
        logger.warning("options without effect: %s; the query ignores them", ", ".join(found))
