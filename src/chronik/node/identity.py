"""Identity of a data directory (`node.json`), and the checks that a start must pass. No I/O.

A start with the wrong directory is rejected before anything changes. With the wrong metadata, every topic would be
unknown and quarantined; with a new directory id, the metadata would treat the disk as replaced.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple, NoReturn

import msgspec

from chronik.errors import ConfigError, DamagedDataError
from chronik.metadata import levels

IDENTITY_FILE: Final = "node.json"

DIRECTORY_FORMAT: Final = 2
"""The format version of the data directory, which `node.json` contains."""


class DirectoryMode(Enum):
    """The mode of the node that a data directory belongs to: standalone or cluster."""

    STANDALONE = "standalone"
    CLUSTER = "cluster"

    @property
    def other(self) -> DirectoryMode:
        return DirectoryMode.CLUSTER if self is DirectoryMode.STANDALONE else DirectoryMode.STANDALONE

    @property
    def owner_description(self) -> str:
        """Return a description of the node that the directory belongs to, for an error message."""
        return "a standalone node" if self is DirectoryMode.STANDALONE else "a node of a cluster"


METADATA_DIRECTORIES: Final = {DirectoryMode.STANDALONE: "__meta", DirectoryMode.CLUSTER: "__raft"}


class DirectoryIdentity(msgspec.Struct, frozen=True, omit_defaults=True):
    """The contents of `node.json`, written at the first start.

    The directory id distinguishes a replaced disk from the original one. Fields that newer versions of the same format
    have added are ignored.
    """

    node_id: int
    directory_id: str
    mode: DirectoryMode | None = None
    cluster_id: str | None = None
    """The id of the cluster that the data directory belongs to, or None until the cluster is bootstrapped."""
    format: int = 1
    level: int = levels.FIRST_LEVEL
    """The highest feature level of all Chronik versions that have started in this directory.

    Other nodes may raise the level of the metadata up to it even while an older version runs here.
    """


class _IdentityFormat(msgspec.Struct):
    format: int = 1


class DirectoryContents(NamedTuple):
    """The contents of a data directory from which its owner can be determined without `node.json`."""

    metadata: frozenset[DirectoryMode]
    """The modes whose metadata the directory contains: both if an older version was once started in the wrong mode."""
    has_topics: bool

    @property
    def is_empty(self) -> bool:
        return not self.metadata and not self.has_topics


def parse_identity(data: bytes, path: str) -> DirectoryIdentity:
    """Decode the contents of `node.json`.

    Raises:
        ConfigError: A newer version has written it.
        DamagedDataError: It cannot be decoded.
    """
    try:
        written = msgspec.json.decode(data, type=_IdentityFormat).format
        if written > DIRECTORY_FORMAT:
            raise ConfigError(
                f"{path}: the data directory has format {written}, but this version of Chronik supports "
                f"{DIRECTORY_FORMAT}: "
                "start it with the newer version that wrote it"
            )
        return msgspec.json.decode(data, type=DirectoryIdentity)
    except msgspec.DecodeError as error:
        raise DamagedDataError(f"{path}: {error}") from error


def reject_newer_metadata(level: int, folder: str) -> None:
    """Raise ConfigError if the metadata has a feature level that this version does not support."""
    try:
        levels.check_level_supported(level, f"the metadata in {folder}")
    except levels.UnsupportedLevelError as error:
        raise ConfigError(str(error)) from None


def reject_lost_identity(folder: str, contents: DirectoryContents) -> NoReturn:
    """Raise ConfigError because `node.json` is missing in a directory that contains data."""
    held = "topics" if contents.has_topics else "metadata"
    raise ConfigError(
        f"{folder} contains {held} but has lost its {IDENTITY_FILE}: copy it back, or start once with "
        "--restore-identity, which restores it from the metadata"
    )


def reject_wrong_directory(
    identity: DirectoryIdentity, node_id: int, mode: DirectoryMode, contents: DirectoryContents, folder: str
) -> None:
    """Raise ConfigError if the directory belongs to another node or mode, or has lost its metadata."""
    if identity.node_id != node_id:
        raise ConfigError(f"node_id = {node_id}: the data directory {folder} belongs to node {identity.node_id}")
    own = identity.mode or _detect_mode(contents) or mode
    if own is not mode:
        raise ConfigError(
            f"{folder} is the data directory of {own.owner_description}, but this node was started as "
            f"{mode.owner_description}: "
            f"{_format_start_hint(own)}{_format_ambiguous_mode_hint(mode, contents)}"
        )
    if mode not in contents.metadata and (identity.cluster_id is not None or contents.has_topics):
        raise ConfigError(f"{folder} has lost its metadata ({METADATA_DIRECTORIES[mode]}): {_format_repair_hint(mode)}")


def _detect_mode(contents: DirectoryContents) -> DirectoryMode | None:
    """Return the mode whose metadata the directory contains, or None if it contains metadata of no mode or of both."""
    return next(iter(contents.metadata)) if len(contents.metadata) == 1 else None


def _format_start_hint(own: DirectoryMode) -> str:
    if own is DirectoryMode.CLUSTER:
        return "use the config file with its [[peers]], or another data directory"
    return "remove [[peers]] from the config, or use another data directory"


def _format_ambiguous_mode_hint(mode: DirectoryMode, contents: DirectoryContents) -> str:
    """Return a hint for the error message if the data directory contains the metadata of both modes, else ""."""
    if mode not in contents.metadata:
        return ""
    return f' (it contains metadata of both; if {IDENTITY_FILE} names the wrong mode, change it to "{mode.value}")'


def _format_repair_hint(mode: DirectoryMode) -> str:
    if mode is DirectoryMode.STANDALONE:
        return "restore it from a backup; the topics in the directory are useless without it"
    return "restore it, or start with an empty data directory, which the other nodes fill"


def reject_other_cluster(identity: DirectoryIdentity, cluster_id: str, folder: str) -> None:
    """Raise ConfigError if the directory and its metadata belong to different clusters."""
    if identity.cluster_id not in (None, cluster_id):
        raise ConfigError(f"{folder} belongs to cluster {identity.cluster_id}, but its metadata to {cluster_id}")


def reject_other_directory_id(identity: DirectoryIdentity, directory_id: str, folder: str) -> None:
    """Raise ConfigError if the metadata and `node.json` have different directory ids."""
    if identity.directory_id != directory_id:
        raise ConfigError(
            f"{folder}: {IDENTITY_FILE} has directory id {identity.directory_id}, but the metadata has {directory_id}: "
            "copy the right file back, or remove it and start once with --restore-identity"
        )
