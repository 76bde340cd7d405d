"""File access of PyIceberg that makes metadata files durable before a catalog refers to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from chronik.pipeline.tables.storage import fsync_path, local_directory, make_directory_durably


class DurableFileIO(PyArrowFileIO):  # type: ignore[misc]
    """PyIceberg's file access through pyarrow, which syncs local files when they are closed.

    Otherwise, a power failure could leave a catalog that refers to an empty metadata file or manifest. Writes to object
    stores are durable anyway.
    """

    def new_output(self, location: str) -> Any:
        directory = local_directory(location)
        output = super().new_output(location)
        return output if directory is None else _DurableFile(output, directory)


class _DurableFile(PyArrowFile):  # type: ignore[misc]
    """A local file that is synced when its output stream is closed."""

    def __init__(self, output: Any, path: Path) -> None:
        super().__init__(output.location, output._path, output._filesystem, output._buffer_size)
        self._local_path = path

    def create(self, overwrite: bool = False) -> Any:
        make_directory_durably(self._local_path.parent)
        return _DurableStream(super().create(overwrite), self._local_path)


class _DurableStream:
    """An output stream that syncs its file when it is closed."""

    def __init__(self, stream: Any, path: Path) -> None:
        self._stream = stream
        self._path = path

    def write(self, data: bytes) -> int:
        return int(self._stream.write(data))

    def tell(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        if not self._stream.closed:
            self._stream.close()
            fsync_path(self._path)
            fsync_path(self._path.parent)

    def __enter__(self) -> _DurableStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
