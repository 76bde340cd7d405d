"""Files of an object store as a pyarrow filesystem, through delta-rs and with one-line errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from chronik.errors import ConfigError
from chronik.pipeline.tables.storage_errors import convert_storage_errors, find_known_cause, summarize_storage_error
from chronik.pipeline.tables.storage_options import to_delta_options


def open_object_store(uri: str, options: Mapping[str, str]) -> Any:
    """Return a pyarrow filesystem of the files below a URI.

    Raises:
        TableStorageError: An option is invalid.
        ConfigError: The URI is invalid.
    """
    with convert_storage_errors(uri, options):
        try:
            return fs.PyFileSystem(ObjectStoreHandler(uri, options))
        except DeltaError as error:
            raise find_known_cause(uri, error, options) or build_uri_error(uri, error) from error


def build_uri_error(uri: str, error: DeltaError) -> ConfigError:
    """Return the error for a URI for which delta-rs has no object store."""
    if "Unknown scheme" in str(error):
        return ConfigError(f"{uri}: unsupported scheme: use a directory or s3://BUCKET/PREFIX")
    return ConfigError(f"{uri}: {summarize_storage_error(str(error))}")


class ObjectStoreHandler(DeltaStorageHandler):  # type: ignore[misc]
    """Delta-rs's filesystem handler, whose errors are converted to TableStorageErrors."""

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        super().__init__(uri, to_delta_options(options))
        self._uri = uri
        self._options = options

    def get_file_info(self, paths: list[str]) -> Any:
        with convert_storage_errors(self._uri, self._options):
            return super().get_file_info(paths)

    def get_file_info_selector(self, selector: Any) -> Any:
        with convert_storage_errors(self._uri, self._options):
            return super().get_file_info_selector(selector)

    def delete_file(self, path: str) -> None:
        with convert_storage_errors(self._uri, self._options):
            super().delete_file(path)

    def open_input_file(self, path: str) -> Any:
        with convert_storage_errors(self._uri, self._options):
            return pa.PythonFile(_ObjectFile(self._handler.open_input_file(path), self._uri, self._options))

    open_input_stream = open_input_file

    def open_output_stream(self, path: str, metadata: Mapping[str, str] | None = None) -> Any:
        with convert_storage_errors(self._uri, self._options):
            return pa.PythonFile(_ObjectFile(self._handler.open_output_stream(path, None), self._uri, self._options))


class _ObjectFile:
    """An open object, whose errors are converted to TableStorageErrors."""

    def __init__(self, file: Any, uri: str, options: Mapping[str, str]) -> None:
        self._file = file
        self._uri = uri
        self._options = options

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)

    def readable(self) -> bool:
        return bool(self._file.readable())

    def writable(self) -> bool:
        return bool(self._file.writable())

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def tell(self) -> int:
        return int(self._file.tell())

    def size(self) -> int:
        return int(self._file.size())

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def read(self, size: int | None = None) -> Any:
        with convert_storage_errors(self._uri, self._options):
            return self._file.read(size)

    def write(self, data: Any) -> int:
        # pyarrow passes its own buffers, but delta-rs accepts only bytes.
        with convert_storage_errors(self._uri, self._options):
            return int(self._file.write(data if isinstance(data, bytes) else bytes(data)))

    def flush(self) -> None:
        with convert_storage_errors(self._uri, self._options):
            self._file.flush()

    def close(self) -> None:
        with convert_storage_errors(self._uri, self._options):
            self._file.close()
