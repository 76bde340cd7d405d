"""Settings of a landing: those of the pipeline, and those in the topics' configs."""

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
"""Maximum number of records of one topic per round: the work lost in a crash. Memory use does not depend on it."""

INTERVAL_SECONDS = 10.0
"""Time between the starts of two rounds when nothing is left to land.

Each round writes its own files, and few large files are read faster than many small ones. Queries read records that
have not landed from the brokers.
"""

ENABLED, FORMAT, PARTITION_BY = "columnar.enabled", "columnar.format", "columnar.partition.by"


EnumT = TypeVar("EnumT", bound=StrEnum)


class Format(StrEnum):
    """The value of the topic config `columnar.format`."""

    RAW = "raw"
    JSON = "json"

    @property
    def kind(self) -> Kind:
        return Kind.RAW if self is Format.RAW else Kind.DECODED


@dataclass(frozen=True, slots=True)
class Wishes:
    """Requested properties of a table. None means unspecified: a fallback or the default applies."""

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
    """Settings of a landing pipeline."""

    bootstrap: Bootstrap
    table_root: str
    topics: tuple[str, ...] | None = None
    """Topics to land, or None for every topic with `columnar.enabled`, including topics that get it later."""
    wishes: Wishes = Wishes()
    group: str = ""
    """Name of the pipeline, and of the consumer group to which the landed offsets are committed."""
    round_records_max: int = ROUND_RECORDS_MAX
    interval_s: float = INTERVAL_SECONDS
    allow_data_loss: bool = False
    codec: str = CODEC
    storage_options: Mapping[str, str] | None = None


def wishes_of(configs: Mapping[str, str]) -> Wishes:
    """Return the table settings in a topic's configs.

    Raises:
        ConfigError: A config has an unknown value.
    """
    return wishes(configs.get(FORMAT) or None, configs.get(PARTITION_BY) or None, (FORMAT, PARTITION_BY))


def wishes(format: str | None, partition_by: str | None, names: tuple[str, str] = ("format", "partition_by")) -> Wishes:
    """Parse table settings; error messages use `names` for the two options.

    Raises:
        ConfigError: A value is unknown.
    """
    return Wishes(
        None if format is None else _parse_choice(Format, format, names[0]).kind,
        None if partition_by is None else _parse_choice(Partitioning, partition_by, names[1]),
    )


def is_enabled(configs: Mapping[str, str]) -> bool:
    return configs.get(ENABLED, "").strip().lower() == "true"


def _parse_choice(choices: type[EnumT], text: str, name: str) -> EnumT:
    try:
        return choices(text.strip().lower())
    except ValueError:
        raise ConfigError(f"invalid {name} = {text!r}: expected {' or '.join(choices)}") from None


def default_group(root: str) -> str:
    """Return a group name derived from the table root, so that each table root has its own pipeline."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", root.rstrip("/").rsplit("/", 1)[-1]).strip("-")
    return f"{GROUP_PREFIX}{name or 'tables'}"
