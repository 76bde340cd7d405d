"""`chronik doctor`: check a config file, a data directory or a cluster, and print problems with their fixes."""

from __future__ import annotations

import argparse
import os
import ssl
import sys
import time
from collections.abc import Callable
from pathlib import Path
from shutil import get_terminal_size
from typing import Final

from msgspec.structs import replace

from chronik.cli.arguments import (
    InvalidInput,
    add_debug_argument,
    add_json_argument,
    load_security,
    parse_positive_seconds,
)
from chronik.cli.doctor.checks import run_all_checks
from chronik.cli.doctor.config_facts import parse_certificates
from chronik.cli.doctor.findings import (
    DoctorFinding,
    compute_exit_code,
    error_finding,
    findings_to_json,
    format_findings,
    summarize_findings,
)
from chronik.cli.doctor.support_bundle import BundleContents, write_bundle
from chronik.cli.doctor.target import DoctorTarget, resolve_target
from chronik.cli.monitoring.arguments import add_monitoring_arguments
from chronik.cli.monitoring.cluster_monitor import ClusterMonitor
from chronik.cli.monitoring.facts import REBALANCING, CertificateFacts, ClusterFacts
from chronik.cli.monitoring.node_pages import NodePages
from chronik.cli.output import print_json
from chronik.client.access.settings import BootstrapAccess
from chronik.client.errors import ClientError
from chronik.protocol.errors import KafkaError
from chronik.tls.certificate_dates import InvalidCertificate
from chronik.wording import pluralize

REBALANCE_OBSERVATION_S: Final = 5.0
"""Maximum time in seconds for which the doctor observes a rebalancing group.

After that, the rebalance is considered stuck.
"""

TIMEOUT_S: Final = 5.0
WIDTH_MAX: Final = 110


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)
    parser.epilog = "Exit code 0: no problems; 1: warnings; 2: errors. The command is read-only."
    parser.add_argument("config", nargs="?", type=Path, metavar="FILE", help="config file of the node to check")
    parser.add_argument(
        "--dir",
        type=Path,
        metavar="DIR",
        help="data directory of a node, or directory of a cluster on this machine (chronik cluster up)",
    )
    add_monitoring_arguments(parser)
    parser.add_argument(
        "--timeout",
        type=parse_positive_seconds,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="request timeout per node (default: %(default)g)",
    )
    parser.add_argument("--deep", action="store_true", help="verify the checksums of all records in data directories")
    parser.add_argument(
        "--bundle", type=Path, metavar="FILE", help="write a support bundle without secrets to FILE (.tar.gz)"
    )
    parser.add_argument(
        "--log", type=Path, action="append", default=[], metavar="FILE", help="log file to include in the bundle"
    )
    add_json_argument(parser)
    add_debug_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.deep and arguments.config is None and arguments.dir is None:
        raise InvalidInput("--deep requires a data directory: use --dir or a config file")
    target = resolve_target(arguments, _create_progress_callback("logs"))
    cluster, pages, unreachable = _collect_cluster_facts(arguments, target)
    findings = run_all_checks(target.local, cluster, time.time())
    if unreachable is not None:
        findings.append(unreachable)
    if arguments.json:
        counts = {"exit_code": compute_exit_code(findings), "verdict": summarize_findings(findings)}
        print_json(counts | {"findings": findings_to_json(findings)})
    else:
        print(format_findings(findings, min(WIDTH_MAX, get_terminal_size().columns - 1)))
    if arguments.bundle is not None:
        logs = (*target.logs, *arguments.log)
        seen = BundleContents(
            findings, target.local, cluster, pages, target.config_files, logs, load_security(arguments)
        )
        names = write_bundle(arguments.bundle, seen, os.environ.items())
        print(
            f"{arguments.bundle}: {pluralize(len(names), 'file')}, secrets redacted; review it before you send it",
            file=sys.stderr,
        )
    return compute_exit_code(findings)


def _collect_cluster_facts(
    arguments: argparse.Namespace, target: DoctorTarget
) -> tuple[ClusterFacts | None, list[NodePages], DoctorFinding | None]:
    """Collect facts about the cluster, and the status pages of its nodes.

    If no node responds, return a finding that reports this.
    """
    if target.access is None:
        return None, [], None
    try:
        with ClusterMonitor(
            target.access, target.ports, timeout_s=arguments.timeout, find_hanging_transactions=True
        ) as watcher:
            facts = _collect_until_balanced(watcher)
            return replace(facts, certificates=_fetch_certificates(target.access, facts)), watcher.pages, None
    except (ClientError, KafkaError) as problem:
        do = "start the cluster, or give an address with -b HOST:PORT; for TLS or a login, use --client-config"
        return None, [], error_finding("no-answer", str(problem), "The cluster could not be checked", do)


def _collect_until_balanced(watcher: ClusterMonitor) -> ClusterFacts:
    began = time.monotonic()
    facts = watcher.collect()
    while (
        any(group.state in REBALANCING for group in facts.groups) and time.monotonic() - began < REBALANCE_OBSERVATION_S
    ):
        time.sleep(0.5)
        facts = watcher.collect()
    return facts


def _fetch_certificates(access: BootstrapAccess, facts: ClusterFacts) -> tuple[CertificateFacts, ...]:
    """Return the certificates that brokers present, without verifying them."""
    if not access.security.is_encrypted:
        return ()
    found: list[CertificateFacts] = []
    for node in facts.nodes:
        host, _, port = node.kafka.rpartition(":")
        try:
            pem = ssl.get_server_certificate((host.strip("[]"), int(port)), timeout=TIMEOUT_S)
            found += parse_certificates(pem, f"what node {node.id} shows")
        except (OSError, ValueError, InvalidCertificate):
            continue  # other checks report unreachable nodes
    return tuple(found)


def _create_progress_callback(what: str) -> Callable[[int, int], None]:
    """Return a progress callback. If stderr is a terminal, it shows a progress bar after one second."""
    from chronik.pipeline.journal.progress_bar import ProgressBar

    bar = ProgressBar(what, unit="partitions", delay_s=1.0)

    def show(done: int, total: int) -> None:
        bar.update(done, total)
        if done >= total:
            bar.close()

    return show
