"""The door to tables: by their place, or by the root that they are under. Which format a table has is known here alone.

Delta is the one that there is.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyarrow import fs

from chronik.pipeline.tables.delta.commit_log import LOG_FOLDER
from chronik.pipeline.tables.delta.table import DeltaTopicTable
from chronik.pipeline.tables.storage import DEAD_LETTERS_SUFFIX, Storage
from chronik.pipeline.tables.topic_table import TableSpec, TopicTable


def open_table(uri: str, storage_options: Mapping[str, str] | None = None) -> TopicTable:
    """Opens a table that is there. Raises TableMissing, TableTorn, TableError, ConfigError."""
    return DeltaTopicTable(uri, storage_options)


def open_or_create(uri: str, spec: TableSpec, storage_options: Mapping[str, str] | None = None) -> TopicTable:
    """Raises TableDiffers when the table that is there is not for this."""
    return DeltaTopicTable.open_or_create(uri, spec, storage_options)


def table_names(root: str, storage_options: Mapping[str, str] | None = None) -> list[str]:
    """Lists the names of folders with a table in them, sorted; tables of dead letters end in `DEAD_LETTERS_SUFFIX`."""
    storage = Storage(root, storage_options)
    inside = fs.FileSelector(storage.full_path(""), allow_not_found=True)
    names = [info.base_name for info in storage.filesystem.get_file_info(inside) if info.type is fs.FileType.Directory]
    logs = storage.filesystem.get_file_info([storage.full_path(f"{name}/{LOG_FOLDER}") for name in names])
    return sorted(name for name, log in zip(names, logs, strict=True) if log.type is fs.FileType.Directory)


def topics_with_dead_letters(root: str, storage_options: Mapping[str, str] | None = None) -> list[str]:
    names = table_names(root, storage_options)
    return [name.removesuffix(DEAD_LETTERS_SUFFIX) for name in names if name.endswith(DEAD_LETTERS_SUFFIX)]
