"""The file system interface that the logs use, and its implementation on disk. `tests/files` has a simulated disk."""

from chronik.files.cache import OPEN_FILES_MAX_DEFAULT, FileCache
from chronik.files.disk import DiskFileSystem
from chronik.files.interface import (
    Buffer,
    File,
    FileLock,
    FileSystem,
    parent_directories,
    parent_directory,
    read_file,
    remove_tree,
    write_atomically,
)

__all__ = [
    "OPEN_FILES_MAX_DEFAULT",
    "Buffer",
    "DiskFileSystem",
    "File",
    "FileCache",
    "FileLock",
    "FileSystem",
    "parent_directories",
    "parent_directory",
    "read_file",
    "remove_tree",
    "write_atomically",
]
