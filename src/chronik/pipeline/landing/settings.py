"""What a landing is told: by whoever runs it, and by the topics' own configs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from chronik.client.access.settings import Bootstrap
from chronik.errors import ConfigError
from chronik.pipeline.tables.layout import Kind, Partitioning
from chronik.pipeline.tables.parquet import CODEC

GROUP_PREFIX = "chronik-pipeline-"

ROUND_RECORDS_MAX = 10_000_000
"""Records of one topic in one round: a driver that dies loses the work of one round. Memory does not depend on it."""

INTERVAL_SECONDS = 10.0
"""The time from one round's start to the next, when nothing is left to land: each round writes its own files, and few
large ones are read more quickly than many small ones. Queries see what has not landed yet all the same."""

ENABLED, FORMAT, PARTITION_BY = "columnar.enabled", "columnar.format", "columnar.partition.by"


Choice = TypeVar("Choice", bound=StrEnum)


class Format(StrEnum):
    RAW = "raw"
    JSON = "json"

    @property
    def kind(self) -> Kind:
        return Kind.RAW if self is Format.RAW else Kind.DECODED


@dataclass(frozen=True, slots=True)
class Wishes:
    """How a table should be; None leaves it to whoever is asked next, and in the end to the default."""

    kind: Kind | None = None
    partitioning: Partitioning | None = None

    def before(self, other: Wishes) -> Wishes:
        return Wishes(
            other.kind if self.kind is None else self.kind,
            other.partitioning if self.partitioning is None else self.partitioning,
        )


DEFAULTS = Wishes(Kind.RAW, Partitioning.DATE)


@dataclass(frozen=True, slots=True)
class LandingSettings:
    bootstrap: Bootstrap
    table_root: str
    topics: tuple[str, ...] | None = None
    """None: every topic that has `columnar.enabled`, also those that get it later."""
    wishes: Wishes = Wishes()
    group: str = ""
    """The group that is told how far the tables are; also the name of the pipeline."""
    round_records_max: int = ROUND_RECORDS_MAX
    interval_s: float = INTERVAL_SECONDS
    allow_data_loss: bool = False
    codec: str = CODEC
    storage_options: Mapping[str, str] | None = None


def wishes_of(configs: Mapping[str, str]) -> Wishes:
    """Returns what a topic's configs say. Raises ConfigError."""
    return wishes(configs.get(FORMAT) or None, configs.get(PARTITION_BY) or None, (FORMAT, PARTITION_BY))


def wishes(format: str | None, partition_by: str | None, names: tuple[str, str] = ("format", "partition_by")) -> Wishes:
    """Raises ConfigError."""
    return Wishes(
        None if format is None else _choice(Format, format, names[0]).kind,
        None if partition_by is None else _choice(Partitioning, partition_by, names[1]),
    )


def is_enabled(configs: Mapping[str, str]) -> bool:
    return configs.get(ENABLED, "").strip().lower() == "true"


def _choice(choices: type[Choice], text: str, name: str) -> Choice:
    try:
        return choices(text.strip().lower())
    except ValueError:
        raise ConfigError(f"{name} = {text!r}: expected {' or '.join(choices)}") from None


def default_group(root: str) -> str:
    """Names it after the place: pipelines into different places are different pipelines."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", root.rstrip("/").rsplit("/", 1)[-1]).strip("-")
    return f"{GROUP_PREFIX}{name or 'tables'}"
