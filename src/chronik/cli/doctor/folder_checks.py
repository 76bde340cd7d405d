"""What can be wrong with a data folder, its disk and the limits of a process. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from chronik.cli.doctor.findings import UNSEEN, Finding, error, note, some, warning
from chronik.cli.doctor.local_facts import DiskFacts, FolderFacts, LimitFacts
from chronik.wording import counted

GIB, MIB = 1 << 30, 1 << 20
FREE_WARNED: Final = (0.10, 1 * GIB)
FREE_WRONG: Final = (0.03, 256 * MIB)
"""Share of the disk, and bytes: less than either is told, a large disk's tenth is more than it needs."""

INODES_WARNED, INODES_WRONG = 0.05, 0.01

CONNECTIONS_WARNED: Final = 1_000


def few_open_files(facts: LimitFacts) -> Iterator[Finding]:
    if facts.connections < CONNECTIONS_WARNED:
        yield warning(
            "open-files",
            f"{facts.whose} may have {facts.open_files} files and connections open, which leaves "
            f"{counted(facts.connections, 'connection')} for clients",
            "Clients beyond that are refused as soon as they connect",
            "LimitNOFILE=65536 in the unit of systemd, or ulimit -n 65536 before chronik start",
        )


def little_room(facts: DiskFacts) -> Iterator[Finding]:
    share = facts.free_bytes / facts.bytes if facts.bytes else 1.0
    for judged, (share_min, bytes_min) in ((error, FREE_WRONG), (warning, FREE_WARNED)):
        if facts.free_bytes < bytes_min or (share < share_min and facts.free_bytes < 20 * bytes_min):
            yield judged(
                "disk-space",
                f"the disk of {facts.path} has {_size(facts.free_bytes)} free, {share:.0%} of {_size(facts.bytes)}",
                "A node whose disk is full stops, and starts again when there is room",
                "make room outside of the folder, or a larger disk; then lower retention: chronik topics alter TOPIC "
                "-c retention.ms=…",
            )
            return


def few_inodes(facts: DiskFacts) -> Iterator[Finding]:
    if not facts.inodes:
        return
    share = facts.free_inodes / facts.inodes
    if share < INODES_WARNED:
        yield (error if share < INODES_WRONG else warning)(
            "inodes",
            f"the disk of {facts.path} can take {counted(facts.free_inodes, 'more file')}, {share:.1%} of its inodes",
            "Each segment is two files: without inodes a node stops as on a full disk",
            "remove small files elsewhere on it (df -i), or larger segments: segment.bytes of topics",
        )


def read_only_disk(facts: DiskFacts) -> Iterator[Finding]:
    if facts.is_read_only:
        yield error(
            "read-only-disk",
            f"the disk of {facts.path} is mounted read-only",
            "Often the system does that when a disk fails",
            "look at dmesg; replace the disk, or mount it for writing",
        )


def unusable_folder(facts: FolderFacts) -> Iterator[Finding]:
    if facts.problem is not None:
        yield error("folder", f"{facts.path}: {facts.problem}", "A node cannot use it", "give the right folder")


def somebody_elses_folder(facts: FolderFacts) -> Iterator[Finding]:
    if not facts.is_ours:
        yield note(
            "folder-owner",
            f"{facts.path} belongs to {facts.owner}, and you are {facts.user}",
            "A node must be started as its owner; parts that you cannot read were not looked at",
            f"sudo -u {facts.owner} chronik doctor …",
        )
    if facts.is_open_to_others:
        yield warning(
            "folder-mode",
            f"all users of this machine can read {facts.path}",
            "Records, and keys of users, are in it",
            f"chmod o= {facts.path}",
        )


def identity(facts: FolderFacts) -> Iterator[Finding]:
    if facts.identity_problem is not None:
        yield error(
            "identity",
            facts.identity_problem,
            "A node refuses to start there",
            "copy node.json back; or start once with --restore-identity, which writes it anew",
        )
    elif facts.expected_node is not None and facts.node_id not in (None, facts.expected_node):
        yield error(
            "identity",
            f"{facts.path} belongs to node {facts.node_id}, and the config file is that of node {facts.expected_node}",
            "A node refuses to start there",
            "a folder of its own for each node: data_dir",
        )
    elif facts.expected_mode is not None and facts.mode not in (None, facts.expected_mode):
        yield error(
            "identity",
            f"{facts.path} is that of a {facts.mode} node, and the config file is that of a {facts.expected_mode} one",
            "A node refuses to start there",
            "give the config file that has its [[peers]], or leave them out; or another folder",
        )


def versions(facts: FolderFacts) -> Iterator[Finding]:
    if facts.format is not None and facts.format > facts.format_supported:
        yield error(
            "folder-format",
            f"{facts.path} has format {facts.format}, and this version knows {facts.format_supported}",
            "A newer version has been there",
            "start the newer version (docs/upgrading.md)",
        )
    elif facts.level is not None and facts.level > facts.level_supported:
        yield error(
            "folder-level",
            f"the metadata in {facts.path} is at level {facts.level}, and this version knows {facts.level_supported}",
            "A newer version has been there, and its level was raised: there is no way back",
            "start the newer version (docs/upgrading.md)",
        )


def damaged_metadata(facts: FolderFacts) -> Iterator[Finding]:
    if facts.metadata_problem is not None:
        yield error(
            "metadata",
            facts.metadata_problem,
            "Without it nobody knows what the topics in the folder are",
            "in a cluster: an empty folder is filled by the others; alone: a copy, or chronik restore of a backup",
        )


def set_aside(facts: FolderFacts) -> Iterator[Finding]:
    if facts.unknown:
        yield note(
            "set-aside",
            f"{facts.path}/unknown holds {counted(len(facts.unknown), 'folder')} of topics that nobody knew",
            "They came from elsewhere, or were deleted while the node was away",
            f"if nobody misses them: rm -r {facts.path}/unknown",
        )


def lost_records(facts: FolderFacts) -> Iterator[Finding]:
    for log in facts.logs:
        if log.missing is not None:
            yield error(
                "lost-records",
                f"{log.partition}: offsets {log.missing[0]} to {log.missing[1] - 1} were synced once, and are gone "
                f"from {facts.path}",
                "They are not served; in a cluster the others fill them in",
                "bring the files back. Gone for good: chronik topics begin-anew, when the node runs",
            )


def damaged_records(facts: FolderFacts) -> Iterator[Finding]:
    for log in facts.logs:
        if log.damaged:
            yield error(
                "damaged-records",
                f"{log.partition} is damaged in {facts.path}: {some(log.damaged)}",
                "Bits have flipped on the disk. What is damaged is not served, the rest is",
                "with other replicas: replace the disk, or empty the folder, and the others fill it; alone: a backup",
            )


def unreadable_logs(facts: FolderFacts) -> Iterator[Finding]:
    unreadable = [log for log in facts.logs if log.unreadable is not None]
    if unreadable:
        first = unreadable[0]
        yield error(
            "unreadable-logs",
            f"{counted(len(unreadable), 'partition')} of {facts.path} cannot be read: {first.partition}: "
            f"{first.unreadable}",
            "A node could not serve them",
            "permissions (chown -R), or the disk: dmesg",
        )


def torn_ends(facts: FolderFacts) -> Iterator[Finding]:
    torn = [log for log in facts.logs if log.torn_bytes]
    if torn:
        total = sum(log.torn_bytes for log in torn)
        yield note(
            "torn-ends",
            f"{counted(len(torn), 'partition')} of {facts.path} {'ends' if len(torn) == 1 else 'end'} with "
            f"{counted(total, 'byte')} that nobody was told are safe: {some([log.partition for log in torn])}",
            "A power cut or kill -9 leaves that; the next start cuts it off, and nothing acknowledged is lost",
        )


def logs_not_seen(facts: FolderFacts) -> Iterator[Finding]:
    if facts.logs_unseen is not None:
        yield note(UNSEEN, f"not looked at: the logs in {facts.path}", facts.logs_unseen)


FOLDER_CHECKS: Final = (
    unusable_folder,
    somebody_elses_folder,
    identity,
    versions,
    damaged_metadata,
    set_aside,
    lost_records,
    damaged_records,
    unreadable_logs,
    torn_ends,
    logs_not_seen,
)
DISK_CHECKS: Final = (little_room, few_inodes, read_only_disk)
LIMIT_CHECKS: Final = (few_open_files,)


def _size(size: int) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.0f} MiB"
