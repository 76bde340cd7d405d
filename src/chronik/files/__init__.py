"""Files as the logs see them: an interface, the real disk, and a twin that loses what a disk may lose."""

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
from chronik.files.twin import TwinFiles

__all__ = [
    "OPEN_FILES_MAX_DEFAULT",
    "Buffer",
    "File",
    "FileCache",
    "FileSystem",
    "Lock",
    "RealFiles",
    "TwinFiles",
    "folder_of",
    "folders_above",
    "read_file",
    "remove_tree",
    "write_atomically",
]
