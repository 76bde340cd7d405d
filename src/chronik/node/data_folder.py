"""The data folder: one process at a time, one node for ever."""

from __future__ import annotations

from pathlib import Path

import msgspec

from chronik.errors import ConfigError, DataDamaged, DataFolderInUse
from chronik.files import Lock, RealFiles, write_atomically
from chronik.files.interface import read_file
from chronik.ids import format_id, new_id, parse_id

LOCK_FILE = ".lock"
IDENTITY_FILE = "node.json"


class Identity(msgspec.Struct, forbid_unknown_fields=True):
    """Written at the first start. The directory id tells a replaced disk from the one that a node had."""

    node_id: int
    directory_id: str


class DataFolder:
    def __init__(self, path: Path, node_id: int) -> None:
        self._path = path
        self._node_id = node_id
        self._lock: Lock | None = None
        self.directory_id = b""
        self.files: RealFiles

    def open(self) -> None:
        """Raises DataFolderInUse, ConfigError when it is another node's folder or cannot be made, DataDamaged."""
        try:
            self.files = RealFiles(self._path)
            self._lock = self.files.lock(LOCK_FILE)
        except DataFolderInUse as error:
            raise DataFolderInUse(f"the data folder {self._path} is in use by another process") from error
        except OSError as error:
            raise ConfigError(f"data_dir = {str(self._path)!r}: {error.strerror or error}") from error
        data = read_file(self.files, IDENTITY_FILE)
        if data is None:
            identity = Identity(self._node_id, format_id(new_id()))
            write_atomically(self.files, IDENTITY_FILE, msgspec.json.encode(identity))
        else:
            identity = self._parse(data)
        if identity.node_id != self._node_id:
            raise ConfigError(
                f"node_id = {self._node_id}: the data folder {self._path} belongs to node {identity.node_id}"
            )
        self.directory_id = parse_id(identity.directory_id)

    def _parse(self, data: bytes) -> Identity:
        try:
            return msgspec.json.decode(data, type=Identity)
        except msgspec.DecodeError as error:
            raise DataDamaged(f"{self._path / IDENTITY_FILE}: {error}") from error

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None
