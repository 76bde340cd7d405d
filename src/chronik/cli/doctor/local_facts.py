"""What was found on this machine: a node's config file, its data folder, the disk below it, and limits. Data only."""

from __future__ import annotations

import msgspec

from chronik.cli.watching.facts import CertificateFacts


class ListenerFacts(msgspec.Struct, frozen=True):
    name: str
    protocol: str
    bound: str
    """HOST:PORT at which it listens."""
    is_loopback: bool
    advertised: str | None = None
    """HOST:PORT that clients are told."""
    advertises_loopback: bool = False
    unresolved: str | None = None
    """Why the advertised host cannot be looked up; None when it can."""
    wants_certificate: bool = False
    """Whether clients must show one, which is as good as a login."""


class ConfigFacts(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    problems: tuple[str, ...] = ()
    """What keeps a node from starting with it."""
    without_effect: tuple[str, ...] = ()
    """Kafka's keys that mean nothing here."""
    readable_by_others: bool = False
    has_secrets: bool = False
    listeners: tuple[ListenerFacts, ...] = ()
    has_authorizer: bool = False
    allows_everyone: bool = False
    """Whether the authorizer lets everybody do what no ACL is about."""
    http: str | None = None
    http_is_loopback: bool = True
    has_http_token: bool = False
    has_http_tls: bool = False
    peers: int = 0
    peers_elsewhere: bool = False
    """Whether a peer is on another address than loopback."""
    has_peer_tls: bool = False
    replication_factor: int = 1
    min_in_sync: int = 1
    flush: str = "group"
    data_dir: str = ""
    node_id: int = 1
    certificates: tuple[CertificateFacts, ...] = ()
    certificate_problems: tuple[str, ...] = ()


class LimitFacts(msgspec.Struct, frozen=True):
    whose: str
    open_files: int
    """As far as the process may raise it by itself."""
    connections: int
    """That are left when files have theirs."""


class DiskFacts(msgspec.Struct, frozen=True):
    path: str
    bytes: int
    free_bytes: int
    inodes: int = 0
    """0: the file system has no fixed number of them."""
    free_inodes: int = 0
    is_read_only: bool = False


class LogFacts(msgspec.Struct, frozen=True):
    partition: str
    torn_bytes: int = 0
    """At its end, never acknowledged: the next start cuts them off."""
    missing: tuple[int, int] | None = None
    """Offsets that were synced once and are gone."""
    damaged: tuple[str, ...] = ()
    """Offsets whose batches are not as they were written."""
    unreadable: str | None = None


class FolderFacts(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    problem: str | None = None
    """Why it cannot be looked at at all."""
    owner: str | None = None
    user: str | None = None
    is_ours: bool = True
    is_open_to_others: bool = False
    in_use: bool = False
    """Whether a process has it: a node runs."""
    identity_problem: str | None = None
    node_id: int | None = None
    mode: str | None = None
    cluster_id: str | None = None
    format: int | None = None
    format_supported: int = 0
    level: int | None = None
    """That of the metadata in it."""
    level_supported: int = 0
    metadata_problem: str | None = None
    expected_node: int | None = None
    """The node that a config file means to start there."""
    expected_mode: str | None = None
    partitions: int = 0
    unknown: tuple[str, ...] = ()
    """Folders of topics that nobody knows, set aside."""
    logs: tuple[LogFacts, ...] = ()
    """Those with something to tell."""
    logs_unseen: str | None = None
    is_deep: bool = False


class LocalFacts(msgspec.Struct, frozen=True):
    configs: tuple[ConfigFacts, ...] = ()
    folders: tuple[FolderFacts, ...] = ()
    disks: tuple[DiskFacts, ...] = ()
    limits: tuple[LimitFacts, ...] = ()
