"""The file system interface that the logs use, and its implementation on disk. `tests/files` has a simulated disk."""

from chronik.files.cache import OPEN_FILES_MAX_DEFAULT, FileCache
from chronik.files.interface import (
    Buffer,
    File,
    FileSystem,
    Lock,
    folder_of,
    folders_above,
    read_file,
    remove_tree,
    write_atomically,
)
from chronik.files.real import RealFiles

__all__ = [
    "OPEN_FILES_MAX_DEFAULT",
    "Buffer",
    "File",
    "FileCache",
    "FileSystem",
    "Lock",
    "RealFiles",
    "folder_of",
    "folders_above",
    "read_file",
    "remove_tree",
    "write_atomically",
]
