"""Checks of a node's config file and of certificates. Free of I/O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from chronik.cli.doctor.findings import DoctorFinding, abbreviate_names, error_finding, note_finding, warning_finding
from chronik.cli.doctor.local_facts import ConfigFacts
from chronik.cli.monitoring.facts import CertificateFacts
from chronik.wording import pluralize

DAY_S: Final = 86_400.0
EXPIRY_WARNING_DAYS: Final = 30

UNENCRYPTED_PROTOCOLS: Final = ("PLAINTEXT", "SASL_PLAINTEXT")
UNAUTHENTICATED_PROTOCOLS: Final = ("PLAINTEXT", "SSL")


def check_config_errors(facts: ConfigFacts) -> Iterator[DoctorFinding]:
    for problem in facts.problems:
        yield error_finding(
            "config",
            f"{facts.path}: {problem.removeprefix(f'{facts.path}: ')}",
            "A node does not start with this config",
            "correct the file; docs/reference/configuration.md lists all keys; docs/reference/broker-configs.md lists "
            "those of [broker]",
        )


def check_ineffective_keys(facts: ConfigFacts) -> Iterator[DoctorFinding]:
    if facts.without_effect:
        yield note_finding(
            "config-without-effect",
            f"{facts.path}: keys in [broker] have no effect: {abbreviate_names(facts.without_effect)}",
            "All of Kafka's broker configs are accepted and returned, including those that Chronik does not use",
            do="remove them; docs/reference/broker-configs.md lists the configs that have an effect",
        )


def check_readable_secrets(facts: ConfigFacts) -> Iterator[DoctorFinding]:
    if facts.has_secrets and facts.readable_by_others:
        yield warning_finding(
            "readable-secrets",
            f"{facts.path} contains secrets and is readable by other users of this machine",
            "With the cluster secret, anyone can join the cluster as a node",
            f"chmod 600 {facts.path}",
        )


def check_advertised_addresses(facts: ConfigFacts) -> Iterator[DoctorFinding]:
    for each in facts.listeners:
        if each.unresolved is not None:
            yield error_finding(
                "advertised-address",
                f"listener {each.name} advertises {each.advertised}, but its host is not resolved: {each.unresolved}",
                "Clients connect to the advertised address and fail after their first request",
                'set advertised = "HOST:PORT" to a name or an address that clients can reach',
            )
        elif each.advertises_loopback and (not each.is_loopback or facts.peers_elsewhere):
            yield warning_finding(
                "advertised-address",
                f"listener {each.name} advertises {each.advertised}, which works only on this machine",
                "Clients on other machines are redirected to an address that they cannot reach",
                'set advertised = "HOST:PORT" to an address that clients can reach',
            )


def check_insecure_listeners(facts: ConfigFacts) -> Iterator[DoctorFinding]:
    for each in facts.listeners:
        missing = [
            *(["no encryption"] if each.protocol in UNENCRYPTED_PROTOCOLS else []),
            *(
                ["no authentication"]
                if each.protocol in UNAUTHENTICATED_PROTOCOLS and not each.wants_certificate
                else []
            ),
        ]
        if each.is_loopback or not missing:
            continue
        yield warning_finding(
            "open-listener",
            f"listener {each.name} at {each.bound} has {' and '.join(missing)} ({each.protocol})",
            "Traffic can be read on the network"
            if each.protocol in UNENCRYPTED_PROTOCOLS
            else "Anyone who can reach it is accepted",
            "use SASL_SSL or a loopback address: docs/operate/security.md; chronik cluster certs creates certificates",
        )


def check_authorizer(facts: ConfigFacts) -> Iterator[DoctorFinding]:
    exposed = [each.name for each in facts.listeners if not each.is_loopback]
    if exposed and not facts.has_authorizer:
        yield warning_finding(
            "no-authorizer",
            f"{abbreviate_names(exposed)} can be reached from other machines, but there is no authorizer",
            "Every client may read, write, alter and delete everything",
            'set "authorizer.class.name" = "standard" and "super.users" = "User:…" in [broker]; then chronik acls add',
        )
    elif exposed and facts.allows_everyone:
        yield warning_finding(
            "everyone-allowed",
            "allow.everyone.if.no.acl.found is true",
            "Every client may do everything with resources that have no ACL",
            "remove it, and add the required ACLs: chronik acls add",
        )


def check_http_security(facts: ConfigFacts) -> Iterator[DoctorFinding]:
    if facts.http is None or facts.http_is_loopback:
        return
    if facts.has_http_token and not facts.has_http_tls:
        yield warning_finding(
            "http-without-tls",
            f"http = {facts.http!r} can be reached from other machines, and http_token is sent there without TLS",
            "The token can be read on the network",
            "set http_keystore, or use a loopback address and a tunnel",
        )
    elif not facts.has_http_token and not facts.has_http_tls:
        yield note_finding(
            "http-shows-nothing",
            f"http = {facts.http!r} can be reached from other machines, but serves only /healthz to them",
            "Without a token or certificates, /status and /metrics are served to loopback addresses only",
            "set http_token, or http_keystore and http_truststore",
        )


def check_registry_security(facts: ConfigFacts) -> Iterator[DoctorFinding]:
    if facts.registry is None or facts.registry_is_loopback or facts.has_http_tls:
        return
    requires_login = facts.has_authorizer or any("SASL" in each.protocol for each in facts.listeners)
    if requires_login or facts.has_http_token:
        sent = "passwords are" if requires_login else "http_token is"
        yield warning_finding(
            "registry-without-tls",
            f"registry = {facts.registry!r} can be reached from other machines, and {sent} sent there without TLS",
            "Credentials can be read on the network",
            "set http_keystore, or use a loopback address and a proxy with TLS",
        )
    else:
        yield note_finding(
            "registry-rejects-all",
            f"registry = {facts.registry!r} can be reached from other machines, but rejects all requests",
            "Without a token, certificates or users, only listeners on loopback addresses accept clients",
            "set http_token, or http_keystore and http_truststore",
        )


def check_peer_tls(facts: ConfigFacts) -> Iterator[DoctorFinding]:
    if facts.peers_elsewhere and not facts.has_peer_tls:
        yield note_finding(
            "peers-without-tls",
            "connections between nodes are not encrypted",
            "Nodes authenticate with the cluster secret, but records can be read on the network",
            "set peer_keystore and peer_truststore: docs/operate/security.md",
        )


def check_durability_settings(facts: ConfigFacts) -> Iterator[DoctorFinding]:
    if facts.peers > 1 and facts.replication_factor == 1:
        yield warning_finding(
            "one-replica",
            f"new topics have one replica (replication_factor = 1), in a cluster of {pluralize(facts.peers, 'node')}",
            "A partition is unavailable while its node is down, and lost if its disk fails",
            "set replication_factor = 3 and min_insync_replicas = 2",
        )
    elif facts.replication_factor > 1 and facts.min_in_sync >= facts.replication_factor:
        yield warning_finding(
            "all-must-be-in-sync",
            f"min_insync_replicas = {facts.min_in_sync} with {pluralize(facts.replication_factor, 'replica')}",
            "While one node is down, produce requests with acks=all fail",
            f"set min_insync_replicas = {facts.replication_factor - 1}",
        )
    elif facts.replication_factor > 2 and facts.min_in_sync == 1:
        yield note_finding(
            "one-in-sync",
            f"min_insync_replicas = 1 with {pluralize(facts.replication_factor, 'replica')}",
            "While other replicas are out of sync, acks=all is acknowledged when a single node has the record",
            "set min_insync_replicas = 2",
        )
    if facts.flush == "os" and facts.peers < 2:
        yield note_finding(
            "not-synced",
            'flush = "os" on a standalone node',
            "A power failure loses acknowledged records that were not yet written to disk",
            'set flush = "group"',
        )


def check_certificates(facts: ConfigFacts) -> Iterator[DoctorFinding]:
    for problem in facts.certificate_problems:
        yield error_finding("certificate", problem, "A node does not start with it", "correct the file or its path")


CONFIG_CHECKS: Final = (
    check_config_errors,
    check_ineffective_keys,
    check_readable_secrets,
    check_advertised_addresses,
    check_insecure_listeners,
    check_authorizer,
    check_http_security,
    check_registry_security,
    check_peer_tls,
    check_durability_settings,
    check_certificates,
)


def check_certificate_expiry(certificate: CertificateFacts, now_s: float) -> Iterator[DoctorFinding]:
    left_s = certificate.not_after_s - now_s
    days = int(abs(left_s) / DAY_S)
    if left_s < 0:
        yield error_finding(
            "expired-certificate",
            f"the certificate of {certificate.subject} in {certificate.where} expired {pluralize(days, 'day')} ago",
            "Clients and nodes that verify it cannot connect",
            "replace the file; nodes reload it within a minute, without a restart",
        )
    elif days < EXPIRY_WARNING_DAYS:
        yield warning_finding(
            "expiring-certificate",
            f"the certificate of {certificate.subject} in {certificate.where} expires in {pluralize(days, 'day')}",
            "After that, clients and nodes that verify it cannot connect",
            "replace the file; nodes reload it within a minute, without a restart",
        )
