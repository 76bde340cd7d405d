"""What can be wrong with a node's config file, and with certificates. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from chronik.cli.doctor.findings import Finding, error, note, some, warning
from chronik.cli.doctor.local_facts import ConfigFacts
from chronik.cli.watching.facts import CertificateFacts
from chronik.wording import counted

DAY_S: Final = 86_400.0
EXPIRY_WARNED_DAYS: Final = 30

PLAIN: Final = ("PLAINTEXT", "SASL_PLAINTEXT")
WITHOUT_LOGIN: Final = ("PLAINTEXT", "SSL")


def wrong_config(facts: ConfigFacts) -> Iterator[Finding]:
    for problem in facts.problems:
        yield error(
            "config",
            f"{facts.path}: {problem.removeprefix(f'{facts.path}: ')}",
            "A node does not start with it",
            "correct the file; all keys: docs/cluster.md, and docs/broker-configs.md for [broker]",
        )


def keys_without_effect(facts: ConfigFacts) -> Iterator[Finding]:
    if facts.without_effect:
        yield note(
            "config-without-effect",
            f"{facts.path}: no effect has what [broker] says of {some(facts.without_effect)}",
            "Kafka's own keys are taken and told, also those that mean nothing here",
            do="leave them out; what has an effect: docs/broker-configs.md",
        )


def secrets_for_all_eyes(facts: ConfigFacts) -> Iterator[Finding]:
    if facts.has_secrets and facts.readable_by_others:
        yield warning(
            "readable-secrets",
            f"{facts.path} holds secrets, and other users of this machine can read it",
            "Who has the cluster's secret can join it as a node",
            f"chmod 600 {facts.path}",
        )


def addresses_clients_cannot_reach(facts: ConfigFacts) -> Iterator[Finding]:
    for each in facts.listeners:
        if each.unresolved is not None:
            yield error(
                "advertised-address",
                f"listener {each.name} tells clients {each.advertised}, and its host is unknown: {each.unresolved}",
                "Clients connect to what they are told, and fail after their first request",
                'advertised = "HOST:PORT" with a name or an address that clients can reach',
            )
        elif each.advertises_loopback and (not each.is_loopback or facts.peers_elsewhere):
            yield warning(
                "advertised-address",
                f"listener {each.name} tells clients {each.advertised}, which is good on this machine alone",
                "Clients elsewhere connect, are told this address, and find nobody there",
                'advertised = "HOST:PORT" with an address that clients can reach',
            )


def open_listeners(facts: ConfigFacts) -> Iterator[Finding]:
    for each in facts.listeners:
        missing = [
            *(["no encryption"] if each.protocol in PLAIN else []),
            *(["no login"] if each.protocol in WITHOUT_LOGIN and not each.wants_certificate else []),
        ]
        if each.is_loopback or not missing:
            continue
        yield warning(
            "open-listener",
            f"listener {each.name} at {each.bound} has {' and '.join(missing)} ({each.protocol})",
            "Whoever is on the way can read along" if each.protocol in PLAIN else "Whoever reaches it is let in",
            "SASL_SSL, or loopback: docs/security.md; chronik cluster certs makes certificates to begin with",
        )


def listeners_without_authorizer(facts: ConfigFacts) -> Iterator[Finding]:
    beyond = [each.name for each in facts.listeners if not each.is_loopback]
    if beyond and not facts.has_authorizer:
        yield warning(
            "no-authorizer",
            f"{some(beyond)} can be reached from elsewhere, and there is no authorizer",
            "Whoever connects may read, write, alter and delete everything",
            '"authorizer.class.name" = "standard" and "super.users" = "User:…" in [broker]; then chronik acls add',
        )
    elif beyond and facts.allows_everyone:
        yield warning(
            "everyone-allowed",
            "allow.everyone.if.no.acl.found is true",
            "Whoever connects may do everything with what no ACL is about",
            "leave it out, and chronik acls add what is needed",
        )


def http_beyond_loopback(facts: ConfigFacts) -> Iterator[Finding]:
    if facts.http is None or facts.http_is_loopback:
        return
    if facts.has_http_token and not facts.has_http_tls:
        yield warning(
            "http-without-tls",
            f"http = {facts.http!r} is reached from elsewhere, and http_token is shown there without TLS",
            "Whoever reads along has the token",
            "http_keystore, or a loopback address and a tunnel",
        )
    elif not facts.has_http_token and not facts.has_http_tls:
        yield note(
            "http-shows-nothing",
            f"http = {facts.http!r} is reached from elsewhere, where nothing but /healthz is shown",
            "Without a token or certificates, /status and /metrics are for loopback alone",
            "http_token, or http_keystore and http_truststore",
        )


def nodes_without_tls(facts: ConfigFacts) -> Iterator[Finding]:
    if facts.peers_elsewhere and not facts.has_peer_tls:
        yield note(
            "peers-without-tls",
            "nodes speak to each other without TLS",
            "They know each other by the cluster's secret, and whoever reads along sees the records",
            "peer_keystore and peer_truststore: docs/security.md",
        )


def settings_that_lose(facts: ConfigFacts) -> Iterator[Finding]:
    if facts.peers > 1 and facts.replication_factor == 1:
        yield warning(
            "one-replica",
            f"new topics have one replica (replication_factor), in a cluster of {counted(facts.peers, 'node')}",
            "When its node is away, nobody can read or write a partition; when its disk dies, it is gone",
            "replication_factor = 3 and min_insync_replicas = 2",
        )
    elif facts.replication_factor > 1 and facts.min_in_sync >= facts.replication_factor:
        yield warning(
            "all-must-be-in-sync",
            f"min_insync_replicas = {facts.min_in_sync} with {counted(facts.replication_factor, 'replica')}",
            "When one node is away, nobody can write with acks=all",
            f"min_insync_replicas = {facts.replication_factor - 1}",
        )
    elif facts.replication_factor > 2 and facts.min_in_sync == 1:
        yield note(
            "one-in-sync",
            f"min_insync_replicas = 1 with {counted(facts.replication_factor, 'replica')}",
            "acks=all is answered when one node has a record, while the others are away",
            "min_insync_replicas = 2",
        )
    if facts.flush == "os" and facts.peers < 2:
        yield note(
            "not-synced",
            'flush = "os", and the node stands alone',
            "A power cut takes what the system had not yet written, though it was acknowledged",
            'flush = "group"',
        )


def unusable_certificates(facts: ConfigFacts) -> Iterator[Finding]:
    for problem in facts.certificate_problems:
        yield error("certificate", problem, "A node does not start with it", "correct the file, or the path to it")


CONFIG_CHECKS: Final = (
    wrong_config,
    keys_without_effect,
    secrets_for_all_eyes,
    addresses_clients_cannot_reach,
    open_listeners,
    listeners_without_authorizer,
    http_beyond_loopback,
    nodes_without_tls,
    settings_that_lose,
    unusable_certificates,
)


def expiring(certificate: CertificateFacts, now_s: float) -> Iterator[Finding]:
    left_s = certificate.not_after_s - now_s
    days = int(abs(left_s) / DAY_S)
    if left_s < 0:
        yield error(
            "expired-certificate",
            f"the certificate of {certificate.subject} in {certificate.where} expired {counted(days, 'day')} ago",
            "Nobody who checks it connects any more",
            "put a new one in its place: nodes take it within a minute, without a restart",
        )
    elif days < EXPIRY_WARNED_DAYS:
        yield warning(
            "expiring-certificate",
            f"the certificate of {certificate.subject} in {certificate.where} expires in {counted(days, 'day')}",
            "Then nobody who checks it connects any more",
            "put a new one in its place: nodes take it within a minute, without a restart",
        )
