"""Checks of a data directory, its disk and the process limits. Free of I/O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from chronik.cli.doctor.findings import (
    UNCOLLECTED,
    DoctorFinding,
    abbreviate_names,
    error_finding,
    note_finding,
    warning_finding,
)
from chronik.cli.doctor.local_facts import DataDirectoryFacts, DiskFacts, LimitFacts
from chronik.wording import pluralize

GIB, MIB = 1 << 30, 1 << 20
FREE_DISK_WARNING: Final = (0.10, 1 * GIB)
FREE_DISK_ERROR: Final = (0.03, 256 * MIB)
"""Free disk space, as a ratio and in bytes, below which the doctor reports an error.

The ratio does not apply to large disks with enough free bytes.
"""

FREE_INODES_WARNING_RATIO, FREE_INODES_ERROR_RATIO = 0.05, 0.01

CONNECTIONS_WARNING: Final = 1_000


def check_open_file_limit(facts: LimitFacts) -> Iterator[DoctorFinding]:
    if facts.connections < CONNECTIONS_WARNING:
        yield warning_finding(
            "open-files",
            f"{facts.whose} may open {facts.open_files} files and connections, which leaves "
            f"{pluralize(facts.connections, 'connection')} for clients",
            "Further client connections are rejected",
            "set LimitNOFILE=65536 in the systemd unit, or run ulimit -n 65536 before chronik start",
        )


def check_disk_space(facts: DiskFacts) -> Iterator[DoctorFinding]:
    ratio = facts.free_bytes / facts.bytes if facts.bytes else 1.0
    for make_finding, (ratio_min, bytes_min) in (
        (error_finding, FREE_DISK_ERROR),
        (warning_finding, FREE_DISK_WARNING),
    ):
        if facts.free_bytes < bytes_min or (ratio < ratio_min and facts.free_bytes < 20 * bytes_min):
            yield make_finding(
                "disk-space",
                f"the disk of {facts.path} has {_format_size(facts.free_bytes)} free, "
                f"{ratio:.0%} of {_format_size(facts.bytes)}",
                "A node stops when its disk is full, and can start again when space is available",
                "free disk space outside the data directory, or use a larger disk; then reduce retention: chronik "
                "topics alter TOPIC -c retention.ms=…",
            )
            return


def check_inodes(facts: DiskFacts) -> Iterator[DoctorFinding]:
    if not facts.inodes:
        return
    ratio = facts.free_inodes / facts.inodes
    if ratio < FREE_INODES_WARNING_RATIO:
        yield (error_finding if ratio < FREE_INODES_ERROR_RATIO else warning_finding)(
            "inodes",
            f"the disk of {facts.path} has inodes for {pluralize(facts.free_inodes, 'more file')}, {ratio:.1%} of all",
            "Each segment needs two files; without inodes a node stops as on a full disk",
            "remove small files from the disk (df -i), or use larger segments: segment.bytes of topics",
        )


def check_read_only_disk(facts: DiskFacts) -> Iterator[DoctorFinding]:
    if facts.is_read_only:
        yield error_finding(
            "read-only-disk",
            f"the disk of {facts.path} is mounted read-only",
            "The operating system often does that when a disk fails",
            "check dmesg; replace the disk, or mount it read-write",
        )


def check_usable_directory(facts: DataDirectoryFacts) -> Iterator[DoctorFinding]:
    if facts.problem is not None:
        yield error_finding(
            "folder", f"{facts.path}: {facts.problem}", "A node cannot use it", "use another data directory"
        )


def check_directory_owner(facts: DataDirectoryFacts) -> Iterator[DoctorFinding]:
    if not facts.is_ours:
        yield note_finding(
            "folder-owner",
            f"{facts.path} is owned by {facts.owner}, but this command runs as {facts.user}",
            "A node must run as the owner; unreadable files were not checked",
            f"sudo -u {facts.owner} chronik doctor …",
        )
    if facts.is_open_to_others:
        yield warning_finding(
            "folder-mode",
            f"all users of this machine can read {facts.path}",
            "It contains records and SCRAM credentials",
            f"chmod o= {facts.path}",
        )


def check_identity(facts: DataDirectoryFacts) -> Iterator[DoctorFinding]:
    if facts.identity_problem is not None:
        yield error_finding(
            "identity",
            facts.identity_problem,
            "A node does not start with this directory",
            "restore node.json, or start the node once with --restore-identity, which recreates it",
        )
    elif facts.expected_node is not None and facts.node_id not in (None, facts.expected_node):
        yield error_finding(
            "identity",
            f"{facts.path} belongs to node {facts.node_id}, but the config file is for node {facts.expected_node}",
            "A node does not start with this directory",
            "use a separate data_dir for each node",
        )
    elif facts.expected_mode is not None and facts.mode not in (None, facts.expected_mode):
        yield error_finding(
            "identity",
            f"{facts.path} belongs to a {facts.mode} node, but the config file is for a {facts.expected_mode} node",
            "A node does not start with this directory",
            "use the matching config file (with or without [[peers]]), or another data_dir",
        )


def check_supported_versions(facts: DataDirectoryFacts) -> Iterator[DoctorFinding]:
    if facts.format is not None and facts.format > facts.format_supported:
        yield error_finding(
            "folder-format",
            f"{facts.path} has format {facts.format}, but this version supports {facts.format_supported}",
            "The directory was written by a newer version",
            "start the newer version (docs/operate/upgrading.md)",
        )
    elif facts.level is not None and facts.level > facts.level_supported:
        yield error_finding(
            "folder-level",
            f"the metadata in {facts.path} is at feature level {facts.level}, but this version supports "
            f"{facts.level_supported}",
            "A newer version has raised the feature level, which cannot be undone",
            "start the newer version (docs/operate/upgrading.md)",
        )


def check_metadata(facts: DataDirectoryFacts) -> Iterator[DoctorFinding]:
    if facts.metadata_problem is not None:
        yield error_finding(
            "metadata",
            facts.metadata_problem,
            "Without its metadata, the topics in the directory cannot be identified",
            "in a cluster: start with an empty directory, which is replicated; standalone: restore a copy or a backup",
        )


def check_quarantined_directories(facts: DataDirectoryFacts) -> Iterator[DoctorFinding]:
    if facts.unknown:
        yield note_finding(
            "set-aside",
            f"{facts.path}/unknown has {pluralize(len(facts.unknown), 'directory', 'directories')} of unknown topics",
            "They were copied from elsewhere, or their topics were deleted while the node was down",
            f"if they are not needed: rm -r {facts.path}/unknown",
        )


def check_lost_records(facts: DataDirectoryFacts) -> Iterator[DoctorFinding]:
    for log in facts.logs:
        if log.missing is not None:
            yield error_finding(
                "lost-records",
                f"{log.partition}: offsets {log.missing[0]} to {log.missing[1] - 1} were synced to disk, but are "
                f"missing in {facts.path}",
                "They are not served; in a cluster they are copied from other replicas",
                "restore the files; if they are lost: chronik topics begin-anew, while the node runs",
            )


def check_damaged_records(facts: DataDirectoryFacts) -> Iterator[DoctorFinding]:
    for log in facts.logs:
        if log.damaged:
            yield error_finding(
                "damaged-records",
                f"{log.partition} is damaged in {facts.path}: {abbreviate_names(log.damaged)}",
                "The disk has corrupted these batches; they are not served, other records are",
                "with other replicas: replace the disk, or empty the directory to replicate again; otherwise: a backup",
            )


def check_unreadable_logs(facts: DataDirectoryFacts) -> Iterator[DoctorFinding]:
    unreadable = [log for log in facts.logs if log.unreadable is not None]
    if unreadable:
        first = unreadable[0]
        yield error_finding(
            "unreadable-logs",
            f"{pluralize(len(unreadable), 'partition')} of {facts.path} cannot be read: {first.partition}: "
            f"{first.unreadable}",
            "A node could not serve them",
            "check the permissions (chown -R), or the disk (dmesg)",
        )


def check_torn_tails(facts: DataDirectoryFacts) -> Iterator[DoctorFinding]:
    torn = [log for log in facts.logs if log.torn_bytes]
    if torn:
        total = sum(log.torn_bytes for log in torn)
        yield note_finding(
            "torn-ends",
            f"{pluralize(len(torn), 'partition')} of {facts.path} {'ends' if len(torn) == 1 else 'end'} with "
            f"{pluralize(total, 'byte')} that were never acknowledged: "
            f"{abbreviate_names([log.partition for log in torn])}",
            "A crash or a power failure leaves a torn tail; the next start truncates it without losing data",
        )


def check_unchecked_logs(facts: DataDirectoryFacts) -> Iterator[DoctorFinding]:
    if facts.logs_unseen is not None:
        yield note_finding(UNCOLLECTED, f"not checked: the logs in {facts.path}", facts.logs_unseen)


DIRECTORY_CHECKS: Final = (
    check_usable_directory,
    check_directory_owner,
    check_identity,
    check_supported_versions,
    check_metadata,
    check_quarantined_directories,
    check_lost_records,
    check_damaged_records,
    check_unreadable_logs,
    check_torn_tails,
    check_unchecked_logs,
)
DISK_CHECKS: Final = (check_disk_space, check_inodes, check_read_only_disk)
LIMIT_CHECKS: Final = (check_open_file_limit,)


def _format_size(size: int) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.0f} MiB"
