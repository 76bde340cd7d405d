"""Whose a data folder is: what `node.json` says, and what a start may make of it. Pure: told what lies in the folder.

A start that does not fit is refused before anything is touched. Under the wrong metadata every topic would be one that
nobody knows, and would be set aside; under a new directory id no replica would be what the metadata takes it for.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple, NoReturn

import msgspec

from chronik.errors import ConfigError, DataDamaged
from chronik.metadata import levels

IDENTITY_FILE: Final = "node.json"

FORMAT: Final = 2
"""The format of everything in the folder. 1 is that of folders whose `node.json` has only the two ids."""


class Mode(Enum):
    STANDALONE = "standalone"
    CLUSTER = "cluster"

    @property
    def other(self) -> Mode:
        return Mode.CLUSTER if self is Mode.STANDALONE else Mode.STANDALONE

    @property
    def owner(self) -> str:
        return "a standalone node" if self is Mode.STANDALONE else "a node of a cluster"


METADATA_FOLDERS: Final = {Mode.STANDALONE: "__meta", Mode.CLUSTER: "__raft"}


class Identity(msgspec.Struct, frozen=True, omit_defaults=True):
    """Written at the first start. The directory id tells a replaced disk from the one that a node had. Fields that a
    newer version of the same format has added are ignored."""

    node_id: int
    directory_id: str
    mode: Mode | None = None
    cluster_id: str | None = None
    """None until it is known: a cluster has none before it is founded."""
    format: int = 1
    level: int = levels.FIRST
    """The highest level that any version supports which was started here: the metadata may have been raised to it, by
    the other nodes also while an older version is back."""


class _Format(msgspec.Struct):
    format: int = 1


class Contents(NamedTuple):
    """What lies in the folder beside `node.json`."""

    metadata: frozenset[Mode]
    """The kinds of which there is any: both, if an older version was once started in the wrong mode."""
    has_topics: bool

    @property
    def is_empty(self) -> bool:
        return not self.metadata and not self.has_topics


def parse_identity(data: bytes, path: str) -> Identity:
    """Raises ConfigError when a newer version has written it, DataDamaged when nobody has."""
    try:
        written = msgspec.json.decode(data, type=_Format).format
        if written > FORMAT:
            raise ConfigError(
                f"{path}: the data folder has format {written}, and this version of Chronik knows {FORMAT} at most: "
                "start it with the newer version that wrote it"
            )
        return msgspec.json.decode(data, type=Identity)
    except msgspec.DecodeError as error:
        raise DataDamaged(f"{path}: {error}") from error


def refuse_newer_metadata(level: int, folder: str) -> None:
    """Raises ConfigError when the metadata was raised to a level that this version does not support."""
    try:
        levels.refuse_unsupported(level, f"the metadata in {folder}")
    except levels.LevelNotSupported as error:
        raise ConfigError(str(error)) from None


def refuse_lost_identity(folder: str, contents: Contents) -> NoReturn:
    """Raises ConfigError: there is no `node.json` in a folder that is not new."""
    held = "topics" if contents.has_topics else "metadata"
    raise ConfigError(
        f"{folder} holds {held} and has lost its {IDENTITY_FILE}: copy it back, or start once with "
        "--restore-identity, which writes it anew from what the metadata says"
    )


def refuse_wrong_start(identity: Identity, node_id: int, mode: Mode, contents: Contents, folder: str) -> None:
    """Raises ConfigError when the folder belongs to another node or another mode, or has lost its metadata."""
    if identity.node_id != node_id:
        raise ConfigError(f"node_id = {node_id}: the data folder {folder} belongs to node {identity.node_id}")
    own = identity.mode or _mode_told_by(contents) or mode
    if own is not mode:
        raise ConfigError(
            f"{folder} is the data folder of {own.owner}, and this start is that of {mode.owner}: "
            f"{_how_to_start(own)}{_where_mode_stands(mode, contents)}"
        )
    if mode not in contents.metadata and (identity.cluster_id is not None or contents.has_topics):
        raise ConfigError(f"{folder} has lost its metadata ({METADATA_FOLDERS[mode]}): {_how_to_mend(mode)}")


def _mode_told_by(contents: Contents) -> Mode | None:
    """Returns the mode of a folder of format 1; None unless it has just one kind of metadata: then the start counts."""
    return next(iter(contents.metadata)) if len(contents.metadata) == 1 else None


def _how_to_start(own: Mode) -> str:
    if own is Mode.CLUSTER:
        return "give the config file that has its [[peers]], or another data folder"
    return "leave out [[peers]], or give another data folder"


def _where_mode_stands(mode: Mode, contents: Contents) -> str:
    """An older version may have been started there in the wrong mode, and this one after it."""
    if mode not in contents.metadata:
        return ""
    return f' (it has metadata of both; should {IDENTITY_FILE} name the wrong mode, write "{mode.value}" there)'


def _how_to_mend(mode: Mode) -> str:
    if mode is Mode.STANDALONE:
        return "bring it back from a backup; without it nobody knows what the topics in the folder are"
    return "bring it back, or start with an empty data folder, which is filled from the other nodes"


def refuse_other_cluster(identity: Identity, cluster_id: str, folder: str) -> None:
    """Raises ConfigError."""
    if identity.cluster_id not in (None, cluster_id):
        raise ConfigError(f"{folder} belongs to cluster {identity.cluster_id}, and its metadata is of {cluster_id}")


def refuse_other_directory(identity: Identity, directory_id: str, folder: str) -> None:
    """Raises ConfigError: what the metadata says of this broker's disk must be what the disk says of itself."""
    if identity.directory_id != directory_id:
        raise ConfigError(
            f"{folder}: {IDENTITY_FILE} is that of directory {identity.directory_id}, and the metadata knows this one "
            f"as {directory_id}: copy the right one back, or remove it and start once with --restore-identity"
        )
