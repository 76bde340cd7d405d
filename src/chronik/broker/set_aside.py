"""The quarantine of directories whose topic or partition is unknown, and their restoration.

A directory is unknown because the node has the wrong metadata, or because its topic was deleted while the node was
down. Wrong metadata must never cost records, so unknown directories are moved, not deleted. A deletion is certain only
if the node has caught up with the cluster to which its data directory belonged before the start. Such a directory gets
a mark when it is quarantined, and is deleted after a retention time.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

import msgspec

from chronik.files import FileSystem, folder_of, read_file, remove_tree, write_atomically
from chronik.ids import parse_id

logger = logging.getLogger("chronik.broker")

TOPICS_FOLDER: Final = "topics"
DELETED_FOLDER: Final = "deleted"
UNKNOWN_FOLDER: Final = "unknown"

MARK_FILE: Final = "set-aside.json"

DELETED_KEPT_MS: Final = 7 * 24 * 3600 * 1000
"""Retention time of directories of topics that were deleted while the node was down. It equals the default retention of
records, so that an operator can undo a mistaken deletion."""

_ID_CHARACTERS: Final = 22


class Mark(msgspec.Struct, frozen=True):
    """A mark in a quarantined directory: the cluster that has deleted the topic, and when it was quarantined."""

    cluster_id: str
    time_ms: int


class Name(NamedTuple):
    """The parsed name of a quarantined directory of a topic or partition."""

    topic_id: bytes
    partition: str | None


def parse_name(name: str) -> Name | None:
    """Parse the name of a quarantined directory, or return None for other names. A suffix `~n` makes names unique."""
    name = name.partition("~")[0]
    index = name[_ID_CHARACTERS + 1 :]
    try:
        topic_id = parse_id(name[:_ID_CHARACTERS])
    except ValueError:
        return None
    if len(name) == _ID_CHARACTERS:
        return Name(topic_id, None)
    return Name(topic_id, index) if name[_ID_CHARACTERS] == "-" and is_index(index) else None


def is_index(name: str) -> bool:
    """Return whether a directory name is a partition index."""
    return name.isascii() and name.isdecimal()


class SetAside:
    """The quarantined directories of a node."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files

    def put(self, directory: str, under: str, mark: Mark | None = None) -> None:
        """Move a directory from `topics` to `under`, unless it is empty."""
        path = f"{TOPICS_FOLDER}/{directory}"
        if not self._files.list_folder(path):
            return
        if mark is not None:
            write_atomically(self._files, f"{path}/{MARK_FILE}", msgspec.json.encode(mark))
        self._move(path, under, directory.replace("/", "-"))

    def put_unknown(self, directory: str, deleted_by: str | None, now_ms: int) -> None:
        """Quarantine a directory. `deleted_by` is the cluster that has deleted or moved it, if that is certain."""
        mark = None if deleted_by is None else Mark(deleted_by, now_ms)
        reason = "is unknown to the cluster" if mark is None else "was deleted or moved while this node was down"
        logger.warning("directory %s/%s %s; quarantined in %s", TOPICS_FOLDER, directory, reason, UNKNOWN_FOLDER)
        self.put(directory, UNKNOWN_FOLDER, mark)

    def unknown_topics(self) -> dict[bytes, str]:
        """Return the names of quarantined topic directories by topic id."""
        topics = {name: each.topic_id for name, each in self.unknown().items() if each.partition is None}
        return {topic_id: name for name, topic_id in sorted(topics.items(), reverse=True)}

    def unknown(self) -> dict[str, Name]:
        """Return the quarantined directories by their names."""
        parsed = {name: parse_name(name) for name in self._files.list_folder(UNKNOWN_FOLDER)}
        return {name: found for name, found in parsed.items() if found is not None}

    def bring_back(self, name: str, partitions: Collection[int]) -> None:
        """Restore the given partitions of a quarantined topic that is known again, unless this node has them.

        Partitions that were quarantined individually stay: their topic was known, and they had moved to other nodes.
        """
        source = f"{UNKNOWN_FOLDER}/{name}"
        for index in self._files.list_folder(source):
            if is_index(index) and int(index) in partitions:
                self._restore_partition(f"{source}/{index}", f"{TOPICS_FOLDER}/{name[:_ID_CHARACTERS]}/{index}")
        if not [index for index in self._files.list_folder(source) if index != MARK_FILE]:
            self._files.remove(f"{source}/{MARK_FILE}")
            self._files.remove_folder(source)
            self._files.sync_folder(UNKNOWN_FOLDER)

    def _restore_partition(self, source: str, target: str) -> None:
        files = self._files
        if self._has_records(target):
            logger.error("directory %s stays quarantined: its topic is known, but %s has new records", source, target)
            return
        if files.list_folder(target):
            self.put(target.removeprefix(f"{TOPICS_FOLDER}/"), DELETED_FOLDER)
        for above in files.make_folder(folder_of(target)):
            files.sync_folder(above)
        files.rename(source, target)
        files.sync_folder(folder_of(source))
        files.sync_folder(folder_of(target))
        logger.warning("directory %s restored from %s: its topic is known again", target, source)

    def _has_records(self, directory: str) -> bool:
        logs = [name for name in self._files.list_folder(directory) if name.endswith(".log")]
        return any(self._files.size(f"{directory}/{name}") for name in logs)

    def give_up_expired(self, cluster_id: str, now_ms: int) -> None:
        """Delete directories that this cluster deleted or moved, after their retention time."""
        for name in self.unknown():
            mark = self._read_mark(f"{UNKNOWN_FOLDER}/{name}")
            if mark is not None and mark.cluster_id == cluster_id and now_ms - mark.time_ms >= DELETED_KEPT_MS:
                logger.info("directory %s/%s of a deleted topic expired; deleting it", UNKNOWN_FOLDER, name)
                self._move(f"{UNKNOWN_FOLDER}/{name}", DELETED_FOLDER, name)

    def remove_deleted(self) -> None:
        """Delete the contents of the `deleted` directory."""
        for name in self._files.list_folder(DELETED_FOLDER):
            remove_tree(self._files, f"{DELETED_FOLDER}/{name}")

    def _read_mark(self, directory: str) -> Mark | None:
        data = read_file(self._files, f"{directory}/{MARK_FILE}")
        try:
            return None if data is None else msgspec.json.decode(data, type=Mark)
        except msgspec.DecodeError:
            return None

    def _move(self, path: str, under: str, name: str) -> None:
        files = self._files
        for created in files.make_folder(under):
            files.sync_folder(created)
        taken = set(files.list_folder(under))
        free = next(each for each in itertools.chain([name], _numbered_names(name)) if each not in taken)
        files.rename(path, f"{under}/{free}")
        files.sync_folder(folder_of(path))
        files.sync_folder(under)


def _numbered_names(name: str) -> Iterator[str]:
    return (f"{name}~{number}" for number in itertools.count(2))
