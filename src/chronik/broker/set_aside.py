"""Folders of no known topic: set aside, and brought back when their topic is known after all.

A folder is unknown because the wrong metadata was looked at, or because its topic was deleted while the node was away.
The first must never cost a record, so nothing is removed on suspicion. A deletion is certain only where the node caught
up with the very cluster that its folder was known to belong to before this start: such a folder is marked when it is
set aside, and removed when its time is over.
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
"""How long the folder of a topic that was deleted while the node was away is kept: as long as records are by default,
for an operator who finds that the deletion was a mistake."""

_ID_CHARACTERS: Final = 22


class Mark(msgspec.Struct, frozen=True):
    cluster_id: str
    time_ms: int


class Name(NamedTuple):
    """The name of a folder that was set aside: a topic's, or one partition's."""

    topic_id: bytes
    partition: str | None


def parse_name(name: str) -> Name | None:
    """Returns None when it is not a name that this module gives. What follows "~" only tells equal names apart."""
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
    """Whether a folder's name is a partition's number."""
    return name.isascii() and name.isdecimal()


class SetAside:
    def __init__(self, files: FileSystem) -> None:
        self._files = files

    def put(self, folder: str, under: str, mark: Mark | None = None) -> None:
        """Moves a folder of `topics`, unless there is nothing in it."""
        path = f"{TOPICS_FOLDER}/{folder}"
        if not self._files.list_folder(path):
            return
        if mark is not None:
            write_atomically(self._files, f"{path}/{MARK_FILE}", msgspec.json.encode(mark))
        self._move(path, under, folder.replace("/", "-"))

    def put_unknown(self, folder: str, deleted_by: str | None, now_ms: int) -> None:
        """`deleted_by` is the cluster that has deleted it, or moved it elsewhere, if that is certain."""
        mark = None if deleted_by is None else Mark(deleted_by, now_ms)
        why = "belongs to nothing here" if mark is None else "was deleted or moved while this node was away"
        logger.warning("%s/%s %s: set aside in %s", TOPICS_FOLDER, folder, why, UNKNOWN_FOLDER)
        self.put(folder, UNKNOWN_FOLDER, mark)

    def unknown_topics(self) -> dict[bytes, str]:
        topics = {name: each.topic_id for name, each in self.unknown().items() if each.partition is None}
        return {topic_id: name for name, topic_id in sorted(topics.items(), reverse=True)}

    def unknown(self) -> dict[str, Name]:
        """Returns what was set aside as unknown, by its name there."""
        parsed = {name: parse_name(name) for name in self._files.list_folder(UNKNOWN_FOLDER)}
        return {name: found for name, found in parsed.items() if found is not None}

    def bring_back(self, name: str, partitions: Collection[int]) -> None:
        """Brings back the given partitions of a topic that is known after all, if this node does not have them.

        Partitions that were set aside singly stay: their topic was known then, and they had moved elsewhere."""
        source = f"{UNKNOWN_FOLDER}/{name}"
        for index in self._files.list_folder(source):
            if is_index(index) and int(index) in partitions:
                self._bring_back(f"{source}/{index}", f"{TOPICS_FOLDER}/{name[:_ID_CHARACTERS]}/{index}")
        if not [index for index in self._files.list_folder(source) if index != MARK_FILE]:
            self._files.remove(f"{source}/{MARK_FILE}")
            self._files.remove_folder(source)
            self._files.sync_folder(UNKNOWN_FOLDER)

    def _bring_back(self, source: str, target: str) -> None:
        files = self._files
        if self._holds_records(target):
            logger.error("%s stays: its topic is known, but %s has got records of its own since", source, target)
            return
        if files.list_folder(target):
            self.put(target.removeprefix(f"{TOPICS_FOLDER}/"), DELETED_FOLDER)
        for above in files.make_folder(folder_of(target)):
            files.sync_folder(above)
        files.rename(source, target)
        files.sync_folder(folder_of(source))
        files.sync_folder(folder_of(target))
        logger.warning("%s is back from %s: its topic is known", target, source)

    def _holds_records(self, folder: str) -> bool:
        logs = [name for name in self._files.list_folder(folder) if name.endswith(".log")]
        return any(self._files.size(f"{folder}/{name}") for name in logs)

    def give_up_expired(self, cluster_id: str, now_ms: int) -> None:
        """Removes what this cluster is known to have deleted, or moved elsewhere, long ago."""
        for name in self.unknown():
            mark = self._mark_of(f"{UNKNOWN_FOLDER}/{name}")
            if mark is not None and mark.cluster_id == cluster_id and now_ms - mark.time_ms >= DELETED_KEPT_MS:
                logger.info("%s/%s was deleted long ago, and is removed", UNKNOWN_FOLDER, name)
                self._move(f"{UNKNOWN_FOLDER}/{name}", DELETED_FOLDER, name)

    def remove_deleted(self) -> None:
        for name in self._files.list_folder(DELETED_FOLDER):
            remove_tree(self._files, f"{DELETED_FOLDER}/{name}")

    def _mark_of(self, folder: str) -> Mark | None:
        data = read_file(self._files, f"{folder}/{MARK_FILE}")
        try:
            return None if data is None else msgspec.json.decode(data, type=Mark)
        except msgspec.DecodeError:
            return None

    def _move(self, path: str, under: str, name: str) -> None:
        files = self._files
        for created in files.make_folder(under):
            files.sync_folder(created)
        taken = set(files.list_folder(under))
        free = next(each for each in itertools.chain([name], _numbered(name)) if each not in taken)
        files.rename(path, f"{under}/{free}")
        files.sync_folder(folder_of(path))
        files.sync_folder(under)


def _numbered(name: str) -> Iterator[str]:
    return (f"{name}~{number}" for number in itertools.count(2))
