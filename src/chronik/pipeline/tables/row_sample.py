"""Sample rows of a table, read from the files with the newest offsets."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

import pyarrow as pa

from chronik.errors import ChronikError
from chronik.pipeline.tables.catalog import open_table
from chronik.pipeline.tables.formatting import encode_sample, encode_sample_error
from chronik.pipeline.tables.storage import table_uri
from chronik.pipeline.tables.table_files import TableFiles, scan_with_partition_columns
from chronik.pipeline.tables.topic_table import TableMismatchError

ROWS_MAX = 20
FILES_READ_MAX = 5
"""Maximum number of files to read, since each may have only one row."""


def sample_rows_json(root: str, topic: str, rows: int, storage_options: Mapping[str, str] | None = None) -> bytes:
    """Return sample rows of a topic's table as JSON, or the error that prevented it; table errors are not raised."""
    uri = table_uri(root, topic)
    try:
        table = open_table(uri, storage_options)
        if table.spec.topic != topic:  # also rejects names with path components
            raise TableMismatchError(f"{uri} is not the table of topic {topic}")
        files = table.files()
        return encode_sample(files.schema.names, read_newest_rows(files, min(max(1, rows), ROWS_MAX)))
    except (ChronikError, OSError, pa.ArrowException) as error:
        return encode_sample_error(str(error).partition("\n")[0] or type(error).__name__)


def read_newest_rows(table: TableFiles, count: int) -> list[dict[str, Any]]:
    """Read up to `count` rows from the start of the newest files."""
    found: list[dict[str, Any]] = []
    newest = sorted(table.files, key=lambda file: file.offsets[1], reverse=True)
    for file in newest[:FILES_READ_MAX]:
        batches = scan_with_partition_columns(table.with_files(file), batch_rows=count)
        for batch in islice(batches, count):
            found += batch.slice(0, count - len(found)).to_pylist()
            if len(found) >= count:
                return found
    return found
