"""Checks of config files, data directories, disks and limits, with facts that trigger them and facts that do not."""

from __future__ import annotations

from typing import Any

import pytest

from chronik.cli.doctor import config_checks, directory_checks
from chronik.cli.doctor.findings import (
    DoctorFinding,
    Severity,
    abbreviate_names,
    compute_exit_code,
    findings_to_json,
    format_findings,
    summarize_findings,
)
from chronik.cli.doctor.local_facts import (
    ConfigFacts,
    DataDirectoryFacts,
    DiskFacts,
    LimitFacts,
    ListenerFacts,
    LogFacts,
)
from chronik.cli.monitoring.facts import CertificateFacts

LOOPBACK = ListenerFacts("PLAINTEXT", "PLAINTEXT", "127.0.0.1:9092", True, "127.0.0.1:9092", True)
SECURED = ListenerFacts("CLIENTS", "SASL_SSL", "0.0.0.0:9092", False, "node1.example.org:9092")
OPEN = ListenerFacts("CLIENTS", "PLAINTEXT", "0.0.0.0:9092", False, "node1.example.org:9092")
NOW_S = 1_700_000_000.0
GIB = 1 << 30


def config(**facts: Any) -> ConfigFacts:
    return ConfigFacts(**({"path": "node1.toml", "listeners": (LOOPBACK,)} | facts))


def check_config(facts: ConfigFacts) -> dict[str, DoctorFinding]:
    return {each.check: each for check in config_checks.CONFIG_CHECKS for each in check(facts)}


def check_directory(**facts: Any) -> dict[str, DoctorFinding]:
    known: dict[str, Any] = {
        "path": "data",
        "format": 2,
        "format_supported": 2,
        "level": 4,
        "level_supported": 4,
    } | facts
    return {
        each.check: each for check in directory_checks.DIRECTORY_CHECKS for each in check(DataDirectoryFacts(**known))
    }


def check_disk(**facts: Any) -> dict[str, DoctorFinding]:
    known: dict[str, Any] = {"path": "data", "bytes": 100 * GIB, "free_bytes": 50 * GIB} | facts
    return {each.check: each for check in directory_checks.DISK_CHECKS for each in check(DiskFacts(**known))}


@pytest.mark.parametrize(
    "facts",
    [
        config(),
        config(listeners=(SECURED,), has_authorizer=True, has_secrets=True),
        config(peers=3, replication_factor=3, min_in_sync=2),
        config(http="127.0.0.1:8080", registry="127.0.0.1:8081"),
        config(registry="0.0.0.0:8081", registry_is_loopback=False, has_http_tls=True),
        config(http="0.0.0.0:8080", http_is_loopback=False, has_http_token=True, has_http_tls=True),
        config(peers=3, peers_elsewhere=True, has_peer_tls=True, replication_factor=3, min_in_sync=2, listeners=()),
        config(readable_by_others=True),
    ],
)
def test_good_config_has_no_findings(facts: ConfigFacts) -> None:
    assert check_config(facts) == {}


INVALID_CONFIGS = {
    "config": (config(problems=("unknown key 'datadir'",)), Severity.ERROR),
    "config-without-effect": (config(without_effect=("zookeeper.connect",)), Severity.NOTE),
    "readable-secrets": (config(has_secrets=True, readable_by_others=True), Severity.WARNING),
    "advertised-address": (
        config(listeners=(ListenerFacts("A", "SASL_SSL", "0.0.0.0:1", False, "nowhere:1", False, "unknown"),)),
        Severity.ERROR,
    ),
    "open-listener": (config(listeners=(OPEN,)), Severity.WARNING),
    "no-authorizer": (config(listeners=(SECURED,)), Severity.WARNING),
    "everyone-allowed": (config(listeners=(SECURED,), has_authorizer=True, allows_everyone=True), Severity.WARNING),
    "http-without-tls": (config(http="0.0.0.0:1", http_is_loopback=False, has_http_token=True), Severity.WARNING),
    "http-shows-nothing": (config(http="0.0.0.0:1", http_is_loopback=False), Severity.NOTE),
    "registry-without-tls": (
        config(registry="0.0.0.0:1", registry_is_loopback=False, has_http_token=True),
        Severity.WARNING,
    ),
    "registry-rejects-all": (config(registry="0.0.0.0:1", registry_is_loopback=False), Severity.NOTE),
    "peers-without-tls": (config(peers_elsewhere=True, listeners=()), Severity.NOTE),
    "one-replica": (config(peers=3), Severity.WARNING),
    "all-must-be-in-sync": (config(peers=3, replication_factor=3, min_in_sync=3), Severity.WARNING),
    "one-in-sync": (config(peers=3, replication_factor=3), Severity.NOTE),
    "not-synced": (config(flush="os"), Severity.NOTE),
    "certificate": (config(certificate_problems=("http_keystore = 'x': No such file",)), Severity.ERROR),
}


@pytest.mark.parametrize("check", INVALID_CONFIGS)
def test_config_problem_has_finding_with_severity(check: str) -> None:
    facts, severity = INVALID_CONFIGS[check]
    assert check_config(facts)[check].severity is severity


def test_client_certificate_counts_as_authentication() -> None:
    strict = ListenerFacts("A", "SSL", "0.0.0.0:9092", False, "node1.example.org:9092", wants_certificate=True)
    lax = ListenerFacts("A", "SSL", "0.0.0.0:9092", False, "node1.example.org:9092")
    assert check_config(config(listeners=(strict,), has_authorizer=True)) == {}
    assert "has no authentication" in check_config(config(listeners=(lax,), has_authorizer=True))["open-listener"].what


def test_advertised_loopback_address_is_a_warning() -> None:
    here = ListenerFacts("A", "SASL_SSL", "0.0.0.0:9092", False, "127.0.0.1:9092", True)
    assert (
        check_config(config(listeners=(here,), has_authorizer=True))["advertised-address"].severity is Severity.WARNING
    )


INVALID_DIRECTORIES: dict[str, tuple[dict[str, Any], Severity]] = {
    "folder": ({"problem": "Permission denied"}, Severity.ERROR),
    "folder-owner": ({"is_ours": False, "owner": "chronik", "user": "ada"}, Severity.NOTE),
    "folder-mode": ({"is_open_to_others": True}, Severity.WARNING),
    "identity": ({"identity_problem": "data has no node.json"}, Severity.ERROR),
    "folder-format": ({"format": 3}, Severity.ERROR),
    "folder-level": ({"level": 5}, Severity.ERROR),
    "metadata": ({"metadata_problem": "damaged"}, Severity.ERROR),
    "set-aside": ({"unknown": ("abc",)}, Severity.NOTE),
    "lost-records": ({"logs": (LogFacts("orders-0", missing=(5, 9)),)}, Severity.ERROR),
    "damaged-records": ({"logs": (LogFacts("orders-0", damaged=("offsets 1 to 2",)),)}, Severity.ERROR),
    "unreadable-logs": ({"logs": (LogFacts("orders-0", unreadable="Permission denied"),)}, Severity.ERROR),
    "torn-ends": ({"logs": (LogFacts("orders-0", torn_bytes=35),)}, Severity.NOTE),
    "not-seen": ({"logs_unseen": "a node is running"}, Severity.NOTE),
}


@pytest.mark.parametrize("check", INVALID_DIRECTORIES)
def test_directory_problem_has_finding_with_severity(check: str) -> None:
    facts, severity = INVALID_DIRECTORIES[check]
    assert check_directory(**facts)[check].severity is severity


def test_good_directory_has_no_findings() -> None:
    assert check_directory(node_id=1, expected_node=1, mode="cluster", expected_mode="cluster", partitions=5) == {}


def test_directory_of_other_node_or_mode_is_an_error() -> None:
    assert "belongs to node 2" in check_directory(node_id=2, expected_node=1)["identity"].what
    assert "standalone" in check_directory(mode="standalone", expected_mode="cluster")["identity"].what


def test_lost_records_finding_names_inclusive_offset_range() -> None:
    assert "offsets 5 to 8 " in check_directory(logs=(LogFacts("orders-0", missing=(5, 9)),))["lost-records"].what


@pytest.mark.parametrize(
    ("facts", "severity"),
    [
        ({}, None),
        ({"bytes": 10_000 * GIB, "free_bytes": 900 * GIB}, None),
        ({"free_bytes": 9 * GIB}, Severity.WARNING),
        ({"free_bytes": 2 * GIB}, Severity.ERROR),
        ({"bytes": GIB, "free_bytes": GIB // 8}, Severity.ERROR),
    ],
)
def test_disk_space_severity_depends_on_ratio_and_size(facts: dict[str, int], severity: Severity | None) -> None:
    found = check_disk(**facts)
    assert (found["disk-space"].severity if found else None) is severity


def test_inodes_and_read_only_disks_are_reported() -> None:
    assert check_disk(inodes=1000, free_inodes=40)["inodes"].severity is Severity.WARNING
    assert check_disk(inodes=1000, free_inodes=5)["inodes"].severity is Severity.ERROR
    assert check_disk(inodes=0, free_inodes=0) == {}
    assert check_disk(is_read_only=True)["read-only-disk"].severity is Severity.ERROR


def test_open_file_limit_finding_names_remaining_connections() -> None:
    [finding] = directory_checks.check_open_file_limit(LimitFacts("node 1", 1024, 608))
    assert "608 connections" in finding.what
    assert [*directory_checks.check_open_file_limit(LimitFacts("node 1", 65536, 60000))] == []


@pytest.mark.parametrize(("days", "severity"), [(-2, Severity.ERROR), (10, Severity.WARNING), (60, None)])
def test_expiring_certificates_are_reported_in_advance(days: int, severity: Severity | None) -> None:
    certificate = CertificateFacts("node1.pem", "node1", NOW_S + days * 86_400)
    assert [each.severity for each in config_checks.check_certificate_expiry(certificate, NOW_S)] == (
        [severity] if severity else []
    )


# Output


def finding(severity: Severity, what: str = "the disk is full", do: str = "") -> DoctorFinding:
    return DoctorFinding("check", severity, what, "writes fail", do)


@pytest.mark.parametrize(
    ("severities", "code"),
    [((), 0), ((Severity.NOTE,), 0), ((Severity.WARNING, Severity.NOTE), 1), ((Severity.WARNING, Severity.ERROR), 2)],
)
def test_exit_code_is_highest_severity(severities: tuple[Severity, ...], code: int) -> None:
    assert compute_exit_code(map(finding, severities)) == code


def test_finding_is_wrapped_paragraph_with_fix_on_its_own_line() -> None:
    findings = [finding(Severity.NOTE), finding(Severity.ERROR, "word " * 20, "chronik cluster rebalance " * 4)]
    worst, note_paragraph, last = format_findings(findings, 60).split("\n\n")
    assert worst.startswith("ERROR    word word")
    *wrapped, command = worst.splitlines()
    assert len(wrapped) > 1
    assert max(map(len, wrapped)) <= 60
    assert command == "         -> " + "chronik cluster rebalance " * 4
    assert note_paragraph == "NOTE     the disk is full. Writes fail."
    assert last == "1 error."


def test_summary_counts_errors_and_warnings() -> None:
    assert summarize_findings([]) == summarize_findings([finding(Severity.NOTE)]) == "No problems found."
    assert (
        summarize_findings([DoctorFinding("not-seen", Severity.NOTE, "x")])
        == "No problems found in the facts that were collected."
    )
    assert summarize_findings([finding(Severity.WARNING)] * 2 + [finding(Severity.ERROR)]) == "1 error and 2 warnings."


def test_json_findings_are_sorted_by_severity() -> None:
    json_findings = findings_to_json([finding(Severity.NOTE), finding(Severity.ERROR)])
    assert [each["severity"] for each in json_findings] == ["error", "note"]
    assert set(json_findings[0]) == {"check", "severity", "what", "why", "do"}


def test_long_list_of_names_is_abbreviated() -> None:
    assert abbreviate_names(["a", "b"]) == "a, b"
    assert abbreviate_names(list("abcdefg")) == "a, b, c, d, e and 2 more"


def test_every_config_and_directory_check_is_triggered() -> None:
    checks = config_checks.CONFIG_CHECKS
    fired = {check.__name__ for check in checks for facts, _ in INVALID_CONFIGS.values() if [*check(facts)]}
    assert fired == {check.__name__ for check in checks}
    folders = {
        check.__name__
        for check in directory_checks.DIRECTORY_CHECKS
        for facts, _ in INVALID_DIRECTORIES.values()
        if [*check(DataDirectoryFacts(path="data", format_supported=2, level_supported=4, **facts))]
    }
    assert folders == {check.__name__ for check in directory_checks.DIRECTORY_CHECKS}
