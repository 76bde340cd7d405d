"""Execution of all checks on the collected facts. Free of I/O."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from chronik.cli.doctor.cluster_checks import NODE_CHECKS, WORKLOAD_CHECKS, report_uncollected_facts
from chronik.cli.doctor.config_checks import CONFIG_CHECKS, check_certificate_expiry
from chronik.cli.doctor.directory_checks import DIRECTORY_CHECKS, DISK_CHECKS, LIMIT_CHECKS
from chronik.cli.doctor.findings import DoctorFinding
from chronik.cli.doctor.local_facts import LocalFacts
from chronik.cli.monitoring.facts import ClusterFacts


def run_cluster_checks(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    """Run the doctor's checks on the facts about a cluster, and yield their findings."""
    for check in (*NODE_CHECKS, *WORKLOAD_CHECKS):
        yield from check(facts)


def run_all_checks(local: LocalFacts, cluster: ClusterFacts | None, now_s: float) -> list[DoctorFinding]:
    return [*_iterate_findings(local, cluster, now_s)]


def _iterate_findings(local: LocalFacts, cluster: ClusterFacts | None, now_s: float) -> Iterator[DoctorFinding]:
    for config in local.configs:
        for config_check in CONFIG_CHECKS:
            yield from config_check(config)
    seen = {node.id for node in cluster.nodes if node.http is not None} if cluster is not None else set()
    for folder in local.folders:
        if folder.in_use and folder.node_id in seen:
            folder = replace(folder, logs_unseen=None)  # the running node reports the state of its logs
        for folder_check in DIRECTORY_CHECKS:
            yield from folder_check(folder)
    for disk in local.disks:
        for disk_check in DISK_CHECKS:
            yield from disk_check(disk)
    for limit in local.limits:
        for limit_check in LIMIT_CHECKS:
            yield from limit_check(limit)
    if cluster is not None:
        yield from run_cluster_checks(cluster)
    shown = () if cluster is None else cluster.certificates
    certificates = {*shown, *(each for config in local.configs for each in config.certificates)}
    for certificate in sorted(certificates, key=lambda each: each.not_after_s):
        yield from check_certificate_expiry(certificate, now_s)
    if cluster is not None:
        yield from report_uncollected_facts(cluster)
