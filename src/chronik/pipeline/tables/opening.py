"""Which tables there are under a root."""

from __future__ import annotations

from collections.abc import Mapping

from pyarrow import fs

from chronik.pipeline.tables.delta.commit_log import LOG_FOLDER
from chronik.pipeline.tables.storage import DEAD_LETTERS_SUFFIX, Storage


def table_names(root: str, storage_options: Mapping[str, str] | None = None) -> list[str]:
    """Names of folders with a table in them, by name; tables of dead letters end in `DEAD_LETTERS_SUFFIX`."""
    storage = Storage(root, storage_options)
    inside = fs.FileSelector(storage.full_path(""), allow_not_found=True)
    names = [info.base_name for info in storage.filesystem.get_file_info(inside) if info.type is fs.FileType.Directory]
    logs = storage.filesystem.get_file_info([storage.full_path(f"{name}/{LOG_FOLDER}") for name in names])
    return sorted(name for name, log in zip(names, logs, strict=True) if log.type is fs.FileType.Directory)


def topics_with_dead_letters(root: str, storage_options: Mapping[str, str] | None = None) -> list[str]:
    names = table_names(root, storage_options)
    return [name.removesuffix(DEAD_LETTERS_SUFFIX) for name in names if name.endswith(DEAD_LETTERS_SUFFIX)]
