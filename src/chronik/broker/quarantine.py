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

from chronik.files import FileSystem, parent_directory, read_file, remove_tree, write_atomically
from chronik.ids import parse_id

logger = logging.getLogger("chronik.broker")

TOPICS_DIRECTORY: Final = "topics"
DELETED_DIRECTORY: Final = "deleted"
UNKNOWN_DIRECTORY: Final = "unknown"

MARK_FILE: Final = "set-aside.json"

DELETED_RETENTION_MS: Final = 7 * 24 * 3600 * 1000
"""Time in milliseconds for which a node keeps the data of topics that were deleted while it was down.

It equals the default retention time of records, so that an operator can undo an accidental deletion.
"""

_ID_CHARACTERS: Final = 22


class QuarantineMark(msgspec.Struct, frozen=True):
    """The contents of a quarantined directory's marker file: the cluster id and the quarantine time."""

    cluster_id: str
    time_ms: int


class QuarantinedName(NamedTuple):
    """The parsed name of a quarantined directory of a topic or partition."""

    topic_id: bytes
    partition: str | None


def parse_quarantined_name(name: str) -> QuarantinedName | None:
    """Parse the name of a quarantined directory; return None for other names.

    A suffix `~n` makes names unique.
    """
    name = name.partition("~")[0]
    index = name[_ID_CHARACTERS + 1 :]
    try:
        topic_id = parse_id(name[:_ID_CHARACTERS])
    except ValueError:
        return None
    if len(name) == _ID_CHARACTERS:
        return QuarantinedName(topic_id, None)
    return QuarantinedName(topic_id, index) if name[_ID_CHARACTERS] == "-" and is_partition_index(index) else None


def is_partition_index(name: str) -> bool:
    """Return whether a directory name is a partition index."""
    return name.isascii() and name.isdecimal()


class Quarantine:
    """The quarantined directories of a node, whose topics and partitions are not assigned to the node."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files

    def move_directory(self, directory: str, under: str, mark: QuarantineMark | None = None) -> None:
        """Move the directory of a topic or partition to the parent directory `under`, unless it is empty."""
        path = f"{TOPICS_DIRECTORY}/{directory}"
        if not self._files.list_directory(path):
            return
        if mark is not None:
            write_atomically(self._files, f"{path}/{MARK_FILE}", msgspec.json.encode(mark))
        self._move_to_unused_name(path, under, directory.replace("/", "-"))

    def quarantine_directory(self, directory: str, deleted_by: str | None, now_ms: int) -> None:
        """Move a topic's or partition's directory to the quarantine, and log a warning.

        `deleted_by` is the cluster that deleted or moved the partitions, or None if unknown.
        """
        mark = None if deleted_by is None else QuarantineMark(deleted_by, now_ms)
        reason = "is unknown to the cluster" if mark is None else "was deleted or moved while this node was down"
        logger.warning(
            "topic directory %s/%s %s; quarantined in %s", TOPICS_DIRECTORY, directory, reason, UNKNOWN_DIRECTORY
        )
        self.move_directory(directory, UNKNOWN_DIRECTORY, mark)

    def list_topics(self) -> dict[bytes, str]:
        """Return the names of quarantined topic directories by topic id."""
        topics = {
            name: each.topic_id for name, each in self.list_quarantined_directories().items() if each.partition is None
        }
        return {topic_id: name for name, topic_id in sorted(topics.items(), reverse=True)}

    def list_quarantined_directories(self) -> dict[str, QuarantinedName]:
        """Return the quarantined directories by their names."""
        parsed = {name: parse_quarantined_name(name) for name in self._files.list_directory(UNKNOWN_DIRECTORY)}
        return {name: found for name, found in parsed.items() if found is not None}

    def restore(self, name: str, partitions: Collection[int]) -> None:
        """Restore the given partitions of a quarantined topic, except partitions that have new records.

        Partitions that were quarantined individually stay: their topic was known, and they had moved to other nodes.
        """
        source = f"{UNKNOWN_DIRECTORY}/{name}"
        for index in self._files.list_directory(source):
            if is_partition_index(index) and int(index) in partitions:
                self._restore_partition(f"{source}/{index}", f"{TOPICS_DIRECTORY}/{name[:_ID_CHARACTERS]}/{index}")
        if not [index for index in self._files.list_directory(source) if index != MARK_FILE]:
            self._files.remove(f"{source}/{MARK_FILE}")
            self._files.remove_directory(source)
            self._files.sync_directory(UNKNOWN_DIRECTORY)

    def _restore_partition(self, source: str, target: str) -> None:
        files = self._files
        if self._has_records(target):
            logger.error(
                "partition directory %s not restored: its topic exists again, but %s has new records; delete the "
                "quarantined directory if you do not need it",
                source,
                target,
            )
            return
        if files.list_directory(target):
            self.move_directory(target.removeprefix(f"{TOPICS_DIRECTORY}/"), DELETED_DIRECTORY)
        for above in files.make_directory(parent_directory(target)):
            files.sync_directory(above)
        files.rename(source, target)
        files.sync_directory(parent_directory(source))
        files.sync_directory(parent_directory(target))
        logger.warning("partition directory %s restored from %s: its topic exists in the cluster again", target, source)

    def _has_records(self, directory: str) -> bool:
        logs = [name for name in self._files.list_directory(directory) if name.endswith(".log")]
        return any(self._files.size(f"{directory}/{name}") for name in logs)

    def delete_expired_directories(self, cluster_id: str, now_ms: int) -> None:
        """Delete the quarantined data of deleted or moved partitions after its retention time.

        Only directories of this cluster are deleted.
        """
        for name in self.list_quarantined_directories():
            mark = self._read_quarantine_mark(f"{UNKNOWN_DIRECTORY}/{name}")
            if mark is not None and mark.cluster_id == cluster_id and now_ms - mark.time_ms >= DELETED_RETENTION_MS:
                logger.info(
                    "directory %s/%s of a deleted topic: retention time expired; deleting the directory",
                    UNKNOWN_DIRECTORY,
                    name,
                )
                self._move_to_unused_name(f"{UNKNOWN_DIRECTORY}/{name}", DELETED_DIRECTORY, name)

    def delete_removed_directories(self) -> None:
        """Delete the data of removed topics and partitions, which is in the directory `deleted`."""
        for name in self._files.list_directory(DELETED_DIRECTORY):
            remove_tree(self._files, f"{DELETED_DIRECTORY}/{name}")

    def _read_quarantine_mark(self, directory: str) -> QuarantineMark | None:
        data = read_file(self._files, f"{directory}/{MARK_FILE}")
        try:
            return None if data is None else msgspec.json.decode(data, type=QuarantineMark)
        except msgspec.DecodeError:
            return None

    def _move_to_unused_name(self, path: str, under: str, name: str) -> None:
        files = self._files
        for created in files.make_directory(under):
            files.sync_directory(created)
        taken = set(files.list_directory(under))
        free = next(each for each in itertools.chain([name], _generate_numbered_names(name)) if each not in taken)
        files.rename(path, f"{under}/{free}")
        files.sync_directory(parent_directory(path))
        files.sync_directory(under)


def _generate_numbered_names(name: str) -> Iterator[str]:
    return (f"{name}~{number}" for number in itertools.count(2))
