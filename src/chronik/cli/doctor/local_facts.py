"""Facts about this machine: a node's config file, data directory, disk and process limits. Data only."""

from __future__ import annotations

import msgspec

from chronik.cli.monitoring.facts import CertificateFacts


class ListenerFacts(msgspec.Struct, frozen=True):
    name: str
    protocol: str
    bound: str
    """Bind address of the listener, as HOST:PORT."""
    is_loopback: bool
    advertised: str | None = None
    """Advertised address of the listener, as HOST:PORT."""
    advertises_loopback: bool = False
    unresolved: str | None = None
    """Reason why the advertised host name cannot be resolved, or None."""
    wants_certificate: bool = False
    """Whether clients must authenticate with a certificate."""


class ConfigFacts(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    problems: tuple[str, ...] = ()
    """Errors in the config file that prevent a node from starting with it."""
    without_effect: tuple[str, ...] = ()
    """Names of Kafka configs in the file that Chronik ignores."""
    readable_by_others: bool = False
    has_secrets: bool = False
    listeners: tuple[ListenerFacts, ...] = ()
    has_authorizer: bool = False
    allows_everyone: bool = False
    """Whether the authorizer allows all operations on resources without ACLs."""
    http: str | None = None
    http_is_loopback: bool = True
    registry: str | None = None
    """Address of the schema registry's own listener."""
    registry_is_loopback: bool = True
    has_http_token: bool = False
    has_http_tls: bool = False
    peers: int = 0
    peers_elsewhere: bool = False
    """Whether the address of at least one peer is not a loopback address."""
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
    """Maximum number of files that a node's process can open.

    It is the limit to which the process can raise its soft limit.
    """
    connections: int
    """Maximum number of client connections that the open-file limit allows.

    Descriptors for other files are reserved.
    """


class DiskFacts(msgspec.Struct, frozen=True):
    path: str
    bytes: int
    free_bytes: int
    inodes: int = 0
    """Total number of inodes, or 0 if the file system has no fixed number."""
    free_inodes: int = 0
    is_read_only: bool = False


class LogFacts(msgspec.Struct, frozen=True):
    partition: str
    torn_bytes: int = 0
    """Size in bytes of the log's incomplete tail, which recovery truncates at the next start.

    Its records were not acknowledged.
    """
    missing: tuple[int, int] | None = None
    """Range of offsets that were synced to disk but are missing in the log, or None."""
    damaged: tuple[str, ...] = ()
    """Offset ranges of batches with invalid checksums."""
    unreadable: str | None = None


class DataDirectoryFacts(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    problem: str | None = None
    """Reason why the directory cannot be checked, or None."""
    owner: str | None = None
    user: str | None = None
    is_ours: bool = True
    is_open_to_others: bool = False
    in_use: bool = False
    """Whether a running node has locked the directory."""
    identity_problem: str | None = None
    node_id: int | None = None
    mode: str | None = None
    cluster_id: str | None = None
    format: int | None = None
    format_supported: int = 0
    level: int | None = None
    """Cluster's feature level in the directory's metadata."""
    level_supported: int = 0
    metadata_problem: str | None = None
    expected_node: int | None = None
    """Node id in the config file that refers to the directory, or None."""
    expected_mode: str | None = None
    partitions: int = 0
    unknown: tuple[str, ...] = ()
    """Quarantined partition directories whose topics are not in the metadata."""
    logs: tuple[LogFacts, ...] = ()
    """Logs with problems."""
    logs_unseen: str | None = None
    is_deep: bool = False


class LocalFacts(msgspec.Struct, frozen=True):
    configs: tuple[ConfigFacts, ...] = ()
    folders: tuple[DataDirectoryFacts, ...] = ()
    disks: tuple[DiskFacts, ...] = ()
    limits: tuple[LimitFacts, ...] = ()
