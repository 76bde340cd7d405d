"""`chronik doctor`: looks at a config file, a folder or a cluster, and says what is wrong and what to do."""

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

from chronik.cli.arguments import WrongInput, add_debug_argument, add_json_argument, positive_seconds, security_of
from chronik.cli.doctor.bundling.bundle import Seen, write_bundle
from chronik.cli.doctor.examining import examined
from chronik.cli.doctor.findings import Finding, error, exit_code, paragraphs, to_json, verdict
from chronik.cli.doctor.gathering.certificates import NotACertificate, certificates_in
from chronik.cli.doctor.gathering.patient import Patient, patient_of
from chronik.cli.output import print_json
from chronik.cli.watching.arguments import add_watching_arguments
from chronik.cli.watching.facts import REBALANCING, CertificateFacts, ClusterFacts
from chronik.cli.watching.pages import Page
from chronik.cli.watching.watcher import Watcher
from chronik.client.access.settings import Access
from chronik.client.errors import ClientError
from chronik.protocol.errors import KafkaError
from chronik.wording import counted

REBALANCING_LOOKS_S: Final = 5.0
"""How long a group that rebalances is looked at again: one that is at it for good is still at it then."""

TIMEOUT_S: Final = 5.0
WIDTH_MAX: Final = 110


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)
    parser.epilog = "Exit code 0: nothing is wrong; 1: warnings; 2: errors. It only looks, and changes nothing."
    parser.add_argument("config", nargs="?", type=Path, metavar="FILE", help="a node's config file: look at that node")
    parser.add_argument(
        "--dir",
        type=Path,
        metavar="DIR",
        help="a node's data folder; or the folder of a cluster on this machine (chronik cluster up): all of its nodes",
    )
    add_watching_arguments(parser)
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="when to give up on a node (default: %(default)g)",
    )
    parser.add_argument("--deep", action="store_true", help="also verify the checksums of all records in the folder")
    parser.add_argument(
        "--bundle", type=Path, metavar="FILE", help="also write all that was seen, without secrets, to FILE.tar.gz"
    )
    parser.add_argument("--log", type=Path, action="append", default=[], metavar="FILE", help="a log for --bundle")
    add_json_argument(parser)
    add_debug_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.deep and arguments.config is None and arguments.dir is None:
        raise WrongInput("--deep reads a folder: name it by --dir, or by a config file")
    patient = patient_of(arguments, _bar("logs"))
    cluster, pages, why_not = _looked_at_cluster(arguments, patient)
    findings = examined(patient.local, cluster, time.time())
    if why_not is not None:
        findings.append(why_not)
    if arguments.json:
        counts = {"exit_code": exit_code(findings), "verdict": verdict(findings)}
        print_json(counts | {"findings": to_json(findings)})
    else:
        print(paragraphs(findings, min(WIDTH_MAX, get_terminal_size().columns - 1)))
    if arguments.bundle is not None:
        logs = (*patient.logs, *arguments.log)
        seen = Seen(findings, patient.local, cluster, pages, patient.config_files, logs, security_of(arguments))
        names = write_bundle(arguments.bundle, seen, os.environ.items())
        print(
            f"{arguments.bundle}: {counted(len(names), 'file')}, without secrets; look through it before you send it",
            file=sys.stderr,
        )
    return exit_code(findings)


def _looked_at_cluster(
    arguments: argparse.Namespace, patient: Patient
) -> tuple[ClusterFacts | None, list[Page], Finding | None]:
    """Returns what was seen of it, the nodes' pages, and what is wrong if nobody answers at all."""
    if patient.access is None:
        return None, [], None
    try:
        with Watcher(patient.access, patient.ports, timeout_s=arguments.timeout, is_thorough=True) as watcher:
            facts = _patiently(watcher)
            return replace(facts, certificates=_shown_by(patient.access, facts)), watcher.pages, None
    except (ClientError, KafkaError) as problem:
        do = "start it, or say where it is: -b HOST:PORT; where TLS or a login is wanted: --client-config"
        return None, [], error("no-answer", str(problem), "Without an answer nothing is known of the cluster", do)


def _patiently(watcher: Watcher) -> ClusterFacts:
    began = time.monotonic()
    facts = watcher.look()
    while any(group.state in REBALANCING for group in facts.groups) and time.monotonic() - began < REBALANCING_LOOKS_S:
        time.sleep(0.5)
        facts = watcher.look()
    return facts


def _shown_by(access: Access, facts: ClusterFacts) -> tuple[CertificateFacts, ...]:
    """Returns the certificates that brokers show, whether or not somebody trusts them."""
    if not access.security.is_encrypted:
        return ()
    found: list[CertificateFacts] = []
    for node in facts.nodes:
        host, _, port = node.kafka.rpartition(":")
        try:
            pem = ssl.get_server_certificate((host.strip("[]"), int(port)), timeout=TIMEOUT_S)
            found += certificates_in(pem, f"what node {node.id} shows")
        except (OSError, ValueError, NotACertificate):
            continue  # that it cannot be reached is told by others
    return tuple(found)


def _bar(what: str) -> Callable[[int, int], None]:
    """A bar on a terminal, for what takes longer than a second."""
    from chronik.pipeline.journal.bars import Bar

    bar = Bar(what, unit="partitions", hidden_for_s=1.0)

    def show(done: int, total: int) -> None:
        bar.reach(done, total)
        if done >= total:
            bar.close()

    return show
