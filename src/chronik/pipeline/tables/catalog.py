"""Catalog of tables: opens and lists them. The only module that knows their formats, Delta and Iceberg.

A Delta table is in the directory of its name under the table root, where its log is. An Iceberg table is in a catalog:
that of the storage option `iceberg_catalog`, else that of CHRONIK_ICEBERG_CATALOG, else a SQLite database in a local
table root.
"""

from __future__ import annotations

import os
from collections.abc import Container, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from pyarrow import fs

from chronik.errors import ConfigError
from chronik.pipeline.tables.delta.table import DeltaTopicTable
from chronik.pipeline.tables.delta.transaction_log import LOG_DIRECTORY
from chronik.pipeline.tables.storage import (
    DEAD_LETTERS_SUFFIX,
    REQUESTS_MAX,
    TableStorage,
    check_table_uri,
    get_parent_uri,
    local_directory,
)
from chronik.pipeline.tables.storage_options import ICEBERG_CATALOG, resolve_storage_options
from chronik.pipeline.tables.topic_table import (
    TableFormat,
    TableMismatchError,
    TableMissingError,
    TableSpec,
    TopicTable,
)
from chronik.pipeline.tables.values.table_schema import TableSchema
from chronik.wording import format_install_hint

CATALOG_VARIABLE: Final = "CHRONIK_ICEBERG_CATALOG"
LOCAL_CATALOG: Final = "iceberg_catalog.db"
"""Name of the SQLite catalog in a local table root."""


def open_table(uri: str, storage_options: Mapping[str, str] | None = None) -> TopicTable:
    """Open an existing table.

    Raises:
        TableMissingError, TornLogError, TableError, ConfigError: The table does not exist or cannot be used.
    """
    catalog = find_iceberg_catalog(get_parent_uri(uri), storage_options)
    if catalog is None:
        return DeltaTopicTable(uri, storage_options)
    try:
        return DeltaTopicTable(uri, storage_options)
    except TableMissingError:
        require_iceberg()
        from chronik.pipeline.tables.iceberg.table import IcebergTopicTable

        return IcebergTopicTable(uri, catalog, storage_options)


def open_or_create_table(
    uri: str,
    spec: TableSpec,
    storage_options: Mapping[str, str] | None = None,
    schema: TableSchema | None = None,
) -> TopicTable:
    """Open a table, or create it if it does not exist. A new table gets the declared schema, if any.

    Raises:
        TableMismatchError: The existing table has another topic, kind, partitioning or table format.
        ConfigError: The spec is invalid, or there is no catalog for an Iceberg table.
    """
    try:
        found = open_table(uri, storage_options).spec
    except TableMissingError:
        pass
    else:
        if found.table_format is not spec.table_format:
            raise TableMismatchError(
                f"{uri} is a table in format {found.table_format}, not {spec.table_format}: use another --table-root"
            )
    if spec.table_format is TableFormat.DELTA:
        return DeltaTopicTable.open_or_create(uri, spec, storage_options, schema)
    require_iceberg()
    from chronik.pipeline.tables.iceberg.table import IcebergTopicTable

    catalog = find_iceberg_catalog(get_parent_uri(uri), storage_options, is_needed=True)
    assert catalog is not None
    return IcebergTopicTable.open_or_create(uri, catalog, spec, storage_options, schema)


def find_iceberg_catalog(
    root: str, storage_options: Mapping[str, str] | None, *, is_needed: bool = False
) -> str | None:
    """Return the URL of the Iceberg catalog of a table root, or None if there is none.

    With `is_needed`, that of a local table root is returned also if it does not exist yet.

    Raises:
        ConfigError: It is needed, but an object store has none by default.
    """
    given = (storage_options or {}).get(ICEBERG_CATALOG) or os.environ.get(CATALOG_VARIABLE)
    if given:
        return given
    directory = local_directory(root)
    if directory is None:
        if is_needed:
            raise ConfigError(
                f"{root}: Iceberg tables in an object store need a catalog: pass --catalog URL or set"
                f" {CATALOG_VARIABLE}"
            )
        return None
    database = directory.absolute() / LOCAL_CATALOG
    if "?" in str(database):
        if is_needed:
            raise ConfigError(f"{root}: Iceberg tables need a table root without ?, or --catalog URL")
        return None
    return f"sqlite:///{database}" if is_needed or Path(database).exists() else None


def require_iceberg() -> None:
    """Check that PyIceberg is installed.

    Raises:
        ConfigError: It is not. The message says how to install it.
    """
    try:
        import pyiceberg.catalog.sql  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"Iceberg tables need PyIceberg: {format_install_hint('iceberg')} ({error})") from None


def list_table_names(root: str, storage_options: Mapping[str, str] | None = None) -> list[str]:
    """Return the sorted names of the tables under a root; dead-letter tables end in `DEAD_LETTERS_SUFFIX`.

    Raises:
        TableStorageError: The object store cannot be listed.
        TableError: The Iceberg catalog cannot be read.
        ConfigError: The root or an option is invalid.
    """
    check_table_uri(root)
    found: set[str] = set()
    directories: set[str] = set()
    catalog = find_iceberg_catalog(root, storage_options)
    if catalog is not None:
        require_iceberg()
        from chronik.pipeline.tables.iceberg.catalogs import list_tables, open_catalog, to_table_identifier

        found.update(list_tables(open_catalog(catalog, resolve_storage_options(root, storage_options)), catalog))
        directories = found.union(map(to_table_identifier, found))  # SeaweedFS creates directories of both names
    return sorted(found.union(_list_delta_tables(root, storage_options, directories)))


def _list_delta_tables(
    root: str, storage_options: Mapping[str, str] | None, iceberg_tables: Container[str]
) -> list[str]:
    """List the directories that have a Delta log, except those of Iceberg tables, where a store may forbid others."""
    storage = TableStorage(root, storage_options)
    selector = fs.FileSelector(storage.full_path(""), allow_not_found=True)
    names = [
        info.base_name
        for info in storage.filesystem.get_file_info(selector)
        if info.type is fs.FileType.Directory and info.base_name not in iceberg_tables
    ]

    def is_table(name: str) -> bool:
        log = storage.filesystem.get_file_info(storage.full_path(f"{name}/{LOG_DIRECTORY}"))
        return log.type is fs.FileType.Directory

    if local_directory(root) is not None:
        return list(filter(is_table, names))
    # Each check is a request.
    with ThreadPoolExecutor(REQUESTS_MAX) as pool:
        return [name for name, found in zip(names, pool.map(is_table, names), strict=True) if found]


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
