"""The content of a schema registry, and its file format: JSON Lines.

The first line is a header. Each further line is a config, a mode or a version of a subject, after the versions that it
refers to. The last line has the number of versions, so that a truncated file is detected.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from chronik.client.registry import SchemaVersion, qualify_subject
from chronik.errors import ChronikError
from chronik.registry.entities import SchemaReference

FORMAT: Final = "chronik-schemas"
FORMAT_VERSION: Final = 1
LINE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum size of a line; Confluent's registry accepts schemas of about 1 MB."""

SchemaKey = tuple[str, int]
"""A qualified subject and a version."""


class SchemaExportError(ChronikError):
    """An export file is damaged, or the content of a registry cannot be imported."""


class RegistryExport(msgspec.Struct):
    """The content of a schema registry."""

    source: str
    """The URL of the registry."""
    schemas: list[SchemaVersion] = []
    """All versions, each after the versions that it refers to."""
    configs: dict[str, dict[str, Any]] = {}
    """Configs by subject or context (`:.CONTEXT:`). The global config has the empty name."""
    modes: dict[str, str] = {}
    """Modes by subject or context. The global mode has the empty name."""

    @property
    def subjects(self) -> list[str]:
        return sorted({schema.subject for schema in self.schemas})


def sort_by_references(schemas: Iterable[SchemaVersion]) -> list[list[SchemaVersion]]:
    """Return the versions in groups, so that versions refer only to those of earlier groups, sorted by id within them.

    References to missing versions are ignored: the registry that imports them reports them.

    Raises:
        SchemaExportError: Versions refer to each other in a circle.
    """
    by_key = {(schema.subject, schema.version): schema for schema in schemas}
    waiting = {key: {each for each in list_referenced(schema) if each in by_key} for key, schema in by_key.items()}
    groups = []
    while waiting:
        ready = sorted(
            (key for key, references in waiting.items() if not references), key=lambda key: (by_key[key].id, key)
        )
        if not ready:
            subject, version = min(waiting)
            raise SchemaExportError(f"version {version} of subject {subject} refers to itself through its references")
        groups.append([by_key[key] for key in ready])
        done = set(ready)
        waiting = {key: references - done for key, references in waiting.items() if key not in done}
    return groups


def list_referenced(schema: SchemaVersion) -> Iterator[SchemaKey]:
    """Yield the versions that a schema refers to."""
    for reference in schema.references:
        yield qualify_subject(reference.subject, schema.context), reference.version


def write_export(export: RegistryExport, path: Path) -> None:
    """Write the export to a new file, which replaces an existing one when it is complete.

    Raises:
        SchemaExportError: The file cannot be written.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            write_lines(export, file)
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise SchemaExportError(f"{path}: cannot write the export: {error.strerror or error}") from error


def write_lines(export: RegistryExport, file: IO[str]) -> None:
    for entry in _iter_entries(export):
        file.write(json.dumps(entry, ensure_ascii=True) + "\n")


def _iter_entries(export: RegistryExport) -> Iterator[Mapping[str, Any]]:
    yield {"kind": "header", "format": FORMAT, "version": FORMAT_VERSION, "source": export.source}
    for subject, config in sorted(export.configs.items()):
        yield {"kind": "config", "subject": subject, "config": config}
    for subject, mode in sorted(export.modes.items()):
        yield {"kind": "mode", "subject": subject, "mode": mode}
    for schema in export.schemas:
        yield {"kind": "schema"} | msgspec.to_builtins(schema)
    yield {"kind": "end", "schemas": len(export.schemas)}


def read_export(path: Path) -> RegistryExport:
    """Read an export file.

    Raises:
        SchemaExportError: The file cannot be read, is no export, or is incomplete.
    """
    try:
        with path.open("rb") as file:
            return _read_lines(path, file)
    except OSError as error:
        raise SchemaExportError(f"{path}: cannot read the export: {error.strerror or error}") from error


def _read_lines(path: Path, file: IO[bytes]) -> RegistryExport:
    export, end = None, None
    number = 0
    while line := file.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(line) > LINE_BYTES_MAX:
            raise SchemaExportError(f"{path}, line {number}: longer than {LINE_BYTES_MAX} bytes")
        try:
            entry = json.loads(line)
            kind = entry["kind"]
            if export is None:
                if kind != "header" or entry["format"] != FORMAT:
                    raise SchemaExportError(f"{path} is not a file of chronik schemas export")
                if entry["version"] != FORMAT_VERSION:
                    raise SchemaExportError(f"{path} has format version {entry['version']}; known: {FORMAT_VERSION}")
                export = RegistryExport(str(entry["source"]))
            elif end is not None:
                raise SchemaExportError(f"{path}, line {number}: the file continues after its end")
            elif kind == "schema":
                export.schemas.append(msgspec.convert(entry, SchemaVersion))
            elif kind == "config":
                export.configs[entry["subject"]] = dict(entry["config"])
            elif kind == "mode":
                export.modes[entry["subject"]] = str(entry["mode"])
            elif kind == "end":
                end = entry["schemas"]
            else:
                raise SchemaExportError(f"{path}, line {number}: unknown kind of entry: {kind!r}")
        except (ValueError, TypeError, KeyError, msgspec.ValidationError) as error:
            what = "is not a file of chronik schemas export" if export is None else f"line {number} is damaged"
            raise SchemaExportError(f"{path}: {what}: {error}") from None
    if export is None or end != len(export.schemas):
        found = 0 if export is None else len(export.schemas)
        raise SchemaExportError(f"{path} is incomplete: it ends after {found} versions; export again")
    return export


def has_equal_content(one: SchemaVersion, other: SchemaVersion) -> bool:
    """Return whether two versions have the same type, references, rules and text, except for its layout."""
    return (
        one.schema_type == other.schema_type
        and _sort_references(one) == _sort_references(other)
        and (one.metadata or None) == (other.metadata or None)
        and (one.rule_set or None) == (other.rule_set or None)
        and is_equal_text(one.schema, other.schema)
    )


def _sort_references(schema: SchemaVersion) -> list[SchemaReference]:
    return sorted(schema.references, key=msgspec.structs.astuple)


def is_equal_text(one: str, other: str) -> bool:
    """Return whether two schema texts are equal as JSON, or except for white space."""
    if one == other:
        return True
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return "".join(one.split()) == "".join(other.split())
