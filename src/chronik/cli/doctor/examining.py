"""Execution of all checks on the collected facts. Free of I/O."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from chronik.cli.doctor.cluster_checks import NODE_CHECKS, unseen
from chronik.cli.doctor.config_checks import CONFIG_CHECKS, expiring
from chronik.cli.doctor.findings import Finding
from chronik.cli.doctor.folder_checks import DISK_CHECKS, FOLDER_CHECKS, LIMIT_CHECKS
from chronik.cli.doctor.local_facts import LocalFacts
from chronik.cli.doctor.traffic_checks import TRAFFIC_CHECKS
from chronik.cli.watching.facts import ClusterFacts


def of_cluster(facts: ClusterFacts) -> Iterator[Finding]:
    """Run the checks of a cluster, except for the report of facts that could not be collected."""
    for check in (*NODE_CHECKS, *TRAFFIC_CHECKS):
        yield from check(facts)


def examined(local: LocalFacts, cluster: ClusterFacts | None, now_s: float) -> list[Finding]:
    return [*_iterate_findings(local, cluster, now_s)]


def _iterate_findings(local: LocalFacts, cluster: ClusterFacts | None, now_s: float) -> Iterator[Finding]:
    for config in local.configs:
        for config_check in CONFIG_CHECKS:
            yield from config_check(config)
    seen = {node.id for node in cluster.nodes if node.http is not None} if cluster is not None else set()
    for folder in local.folders:
        if folder.in_use and folder.node_id in seen:
            folder = replace(folder, logs_unseen=None)  # the running node reports the state of its logs
        for folder_check in FOLDER_CHECKS:
            yield from folder_check(folder)
    for disk in local.disks:
        for disk_check in DISK_CHECKS:
            yield from disk_check(disk)
    for limit in local.limits:
        for limit_check in LIMIT_CHECKS:
            yield from limit_check(limit)
    if cluster is not None:
        yield from of_cluster(cluster)
    shown = () if cluster is None else cluster.certificates
    certificates = {*shown, *(each for config in local.configs for each in config.certificates)}
    for certificate in sorted(certificates, key=lambda each: each.not_after_s):
        yield from expiring(certificate, now_s)
    if cluster is not None:
        yield from unseen(cluster)
