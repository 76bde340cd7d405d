"""Catalog of tables: opens and lists them. The only module that knows their format, which is Delta."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from pyarrow import fs

from chronik.pipeline.tables.delta.table import DeltaTopicTable
from chronik.pipeline.tables.delta.transaction_log import LOG_DIRECTORY
from chronik.pipeline.tables.storage import (
    DEAD_LETTERS_SUFFIX,
    REQUESTS_MAX,
    TableStorage,
    check_table_uri,
    local_directory,
)
from chronik.pipeline.tables.topic_table import TableMissingError, TableSpec, TopicTable
from chronik.pipeline.tables.values.table_schema import TableSchema


def open_table(uri: str, storage_options: Mapping[str, str] | None = None) -> TopicTable:
    """Open an existing table.

    Raises:
        TableMissingError, TornLogError, TableError, ConfigError: The table does not exist or cannot be used.
    """
    return DeltaTopicTable(uri, storage_options)


def open_or_create_table(
    uri: str,
    spec: TableSpec,
    storage_options: Mapping[str, str] | None = None,
    schema: TableSchema | None = None,
) -> TopicTable:
    """Open a table, or create it if it does not exist. A new table gets the declared schema, if any.

    Raises:
        TableMismatchError: The existing table has another topic, kind or partitioning.
    """
    return DeltaTopicTable.open_or_create(uri, spec, storage_options, schema)


def list_table_names(root: str, storage_options: Mapping[str, str] | None = None) -> list[str]:
    """Return the sorted names of the tables under a root; dead-letter tables end in `DEAD_LETTERS_SUFFIX`.

    Raises:
        TableStorageError: The object store cannot be listed.
        ConfigError: The root or an option is invalid.
    """
    check_table_uri(root)
    storage = TableStorage(root, storage_options)
    selector = fs.FileSelector(storage.full_path(""), allow_not_found=True)
    names = [
        info.base_name for info in storage.filesystem.get_file_info(selector) if info.type is fs.FileType.Directory
    ]

    def is_table(name: str) -> bool:
        log = storage.filesystem.get_file_info(storage.full_path(f"{name}/{LOG_DIRECTORY}"))
        return log.type is fs.FileType.Directory

    if local_directory(root) is not None:
        return sorted(filter(is_table, names))
    # Each check is a request.
    with ThreadPoolExecutor(REQUESTS_MAX) as pool:
        return sorted(name for name, found in zip(names, pool.map(is_table, names), strict=True) if found)


def list_existing_tables(root: str, storage_options: Mapping[str, str] | None = None) -> list[str]:
    """Return the sorted names of the tables under a root, as `list_table_names` does.

    Raises:
        TableMissingError: There are none, probably because the root is misspelled.
    """
    names = list_table_names(root, storage_options)
    if not names:
        raise TableMissingError(f"no tables under {root}")
    return names


def list_topics_with_dead_letters(root: str, storage_options: Mapping[str, str] | None = None) -> list[str]:
    """Return the topics under a root that have a dead-letter table."""
    names = list_table_names(root, storage_options)
    return [name.removesuffix(DEAD_LETTERS_SUFFIX) for name in names if name.endswith(DEAD_LETTERS_SUFFIX)]
