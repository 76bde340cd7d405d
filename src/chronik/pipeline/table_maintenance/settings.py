"""Settings of table maintenance: the options of a pipeline, and the topic configs that apply without them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from chronik.errors import ConfigError
from chronik.pipeline.table_maintenance.policy import (
    HOUR_MS,
    RETENTION_MS_DEFAULT,
    RETENTION_MS_MIN,
    MaintenanceSettings,
)
from chronik.pipeline.tables.parquet import FILE_BYTES_TARGET

MAINTENANCE_CONFIG: Final = "columnar.maintenance.enabled"
FILE_BYTES_CONFIG: Final = "columnar.file.bytes"
RETENTION_CONFIG: Final = "columnar.history.retention.ms"

FILE_BYTES_MIN: Final = 1024
"""Minimum target size of data files in bytes: about that of an empty file."""


@dataclass(frozen=True, slots=True)
class MaintenanceOptions:
    """The maintenance options of a pipeline. None means that the topic's config applies, else the default."""

    is_enabled: bool | None = None
    file_bytes: int | None = None
    """Target size of data files in bytes."""
    retention_hours: int | None = None
    """Number of hours for which versions and replaced files are kept."""

    def __post_init__(self) -> None:
        _check_file_bytes(self.file_bytes, "file_bytes")
        if self.retention_hours is not None and self.retention_hours * HOUR_MS < RETENTION_MS_MIN:
            raise ConfigError(f"invalid retention_hours = {self.retention_hours}: expected at least 1")

    def resolve(self, configs: Mapping[str, str]) -> MaintenanceSettings:
        """Return the settings of a topic's tables, given the topic's configs.

        Raises:
            ConfigError: A config is invalid.
        """
        retention_ms = None if self.retention_hours is None else self.retention_hours * HOUR_MS
        settings = MaintenanceSettings(
            _parse_enabled(configs) if self.is_enabled is None else self.is_enabled,
            _parse_number(configs, FILE_BYTES_CONFIG, FILE_BYTES_TARGET)
            if self.file_bytes is None
            else self.file_bytes,
            _parse_number(configs, RETENTION_CONFIG, RETENTION_MS_DEFAULT) if retention_ms is None else retention_ms,
        )
        _check_file_bytes(settings.file_bytes, FILE_BYTES_CONFIG)
        if settings.retention_ms < RETENTION_MS_MIN:
            raise ConfigError(
                f"invalid {RETENTION_CONFIG} = {settings.retention_ms}: expected at least {RETENTION_MS_MIN}"
            )
        return settings


def _parse_enabled(configs: Mapping[str, str]) -> bool:
    return configs.get(MAINTENANCE_CONFIG, "true").strip().lower() != "false"


def _parse_number(configs: Mapping[str, str], name: str, default: int) -> int:
    text = configs.get(name, "").strip()
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"invalid {name} = {text!r}: expected a number") from None


def _check_file_bytes(file_bytes: int | None, name: str) -> None:
    if file_bytes is not None and file_bytes < FILE_BYTES_MIN:
        raise ConfigError(f"invalid {name} = {file_bytes}: expected at least {FILE_BYTES_MIN}")


DEFAULT_MAINTENANCE: Final = MaintenanceOptions()
