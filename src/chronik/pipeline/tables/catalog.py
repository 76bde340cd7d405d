"""Catalog of tables: opens and lists them. The only module that knows their format, which is Delta."""

from __future__ import annotations

from collections.abc import Mapping

from pyarrow import fs

from chronik.pipeline.tables.delta.table import DeltaTopicTable
from chronik.pipeline.tables.delta.transaction_log import LOG_DIRECTORY
from chronik.pipeline.tables.storage import DEAD_LETTERS_SUFFIX, TableStorage
from chronik.pipeline.tables.topic_table import TableSpec, TopicTable


def open_table(uri: str, storage_options: Mapping[str, str] | None = None) -> TopicTable:
    """Open an existing table.

    Raises:
        TableMissingError, TornLogError, TableError, ConfigError: The table does not exist or cannot be used.
    """
    return DeltaTopicTable(uri, storage_options)


def open_or_create_table(uri: str, spec: TableSpec, storage_options: Mapping[str, str] | None = None) -> TopicTable:
    """Open a table, or create it if it does not exist.

    Raises:
        TableMismatchError: The existing table has another topic, kind or partitioning.
    """
    return DeltaTopicTable.open_or_create(uri, spec, storage_options)


def list_table_names(root: str, storage_options: Mapping[str, str] | None = None) -> list[str]:
    """Return the sorted names of the tables under a root; dead-letter tables end in `DEAD_LETTERS_SUFFIX`."""
    storage = TableStorage(root, storage_options)
    selector = fs.FileSelector(storage.full_path(""), allow_not_found=True)
    names = [
        info.base_name for info in storage.filesystem.get_file_info(selector) if info.type is fs.FileType.Directory
    ]
    logs = storage.filesystem.get_file_info([storage.full_path(f"{name}/{LOG_DIRECTORY}") for name in names])
    return sorted(name for name, log in zip(names, logs, strict=True) if log.type is fs.FileType.Directory)


def topics_with_dead_letters(root: str, storage_options: Mapping[str, str] | None = None) -> list[str]:
    """Return the topics under a root that have a dead-letter table."""
    names = list_table_names(root, storage_options)
    return [name.removesuffix(DEAD_LETTERS_SUFFIX) for name in names if name.endswith(DEAD_LETTERS_SUFFIX)]
