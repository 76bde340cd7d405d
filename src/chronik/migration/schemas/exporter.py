"""Reads the whole content of a schema registry: Chronik's, Confluent's or Karapace's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar

from chronik.client.registry import ALL_CONTEXTS, DEFAULT_CONTEXT, RegistryAdminClient, SchemaVersion
from chronik.migration.schemas.registry_export import RegistryExport, sort_by_references
from chronik.wording import pluralize

CONNECTIONS: Final = 8
"""Number of concurrent requests."""
GLOBAL: Final = ""
"""The name under which an export has the global config and mode."""

ProgressCallback = Callable[[str], None]
In = TypeVar("In")
Out = TypeVar("Out")


class SubjectContent(NamedTuple):
    """A subject with its config and mode."""

    name: str
    schemas: list[SchemaVersion]
    config: dict[str, Any] | None
    mode: str | None


def read_registry(
    client: RegistryAdminClient, progress: ProgressCallback, *, prefix: str = ALL_CONTEXTS
) -> RegistryExport:
    """Return all contexts, subjects, versions, configs and modes of a registry, with the soft-deleted versions.

    Raises:
        RegistryAdminError: The registry cannot be reached, or rejects a request.
    """
    export = RegistryExport(client.url)
    contexts = [f":{context}:" for context in client.list_contexts() if context != DEFAULT_CONTEXT]
    for name in (GLOBAL, *contexts):
        if (config := client.find_config(name or None)) is not None:
            export.configs[name] = config
        if (mode := client.find_mode(name or None)) is not None:
            export.modes[name] = mode
    names = client.list_subjects(prefix=prefix, deleted=True)
    schemas: list[SchemaVersion] = []
    for subject in map_concurrently(lambda name: read_subject(client, name), names):
        schemas += subject.schemas
        if subject.config is not None:
            export.configs[subject.name] = subject.config
        if subject.mode is not None:
            export.modes[subject.name] = subject.mode
        progress(f"reading {client.url}: {pluralize(len(schemas), 'version')} of {pluralize(len(names), 'subject')}")
    export.schemas = [schema for group in sort_by_references(schemas) for schema in group]
    return export


def read_subject(client: RegistryAdminClient, name: str) -> SubjectContent:
    """Return a subject with all its versions."""
    versions = client.list_versions(name, deleted=True)
    live = set(client.list_versions(name))
    schemas = []
    for version in versions:
        schema = client.get_version(name, version, deleted=True)
        schema.deleted = version not in live
        schemas.append(schema)
    return SubjectContent(name, schemas, client.find_config(name), client.find_mode(name))


def map_concurrently(function: Callable[[In], Out], values: Iterable[In]) -> Iterator[Out]:
    """Yield the results of a function for all values, in order, with several requests at a time.

    After an error, no further requests are sent.
    """
    given: Sequence[In] = list(values)
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        try:
            yield from pool.map(function, given)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
