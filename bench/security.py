"""`python -m bench.security` (`make bench-security`): the cost of TLS, SASL and 10,000 ACLs, in interleaved rounds.

One broker has a plaintext listener, one with TLS (1.3, AES-128-GCM) and one with SASL. Another broker has 10,000 ACLs,
one of which allows its client. Ratios are computed within a round; more than 1 is better. The exit code is 1 if TLS
has less than half of the plaintext throughput, if SASL or ACLs cost more than the noise (the same listener measured
twice), or if TLS is slower than Apache Kafka's with the same settings.

The TLS cost depends on the client: librdkafka creates small TLS records (for a fifth of Kafka's, a few bytes and then
1,000), and the Java client reaches a better ratio to plaintext. So both are measured.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Final

from bench.apache_kafka import DEFAULT_JVM_OPTIONS, ApacheKafka, describe_kafka, kafka_unavailable_reason, run_tool
from bench.kafka_comparison import print_progress
from bench.results import Cell, ResultTable, add_keep_option, describe_run, format_report, format_verdict
from bench.servers import ROOT
from chronik.bench import consume, produce
from chronik.bench.consume import ConsumeLoad
from chronik.bench.librdkafka_config import create_temporary_topics, generate_name
from chronik.bench.produce import ProduceLoad
from chronik.client.access.settings import BootstrapAccess, parse_security
from chronik.client.cluster import ClusterClient
from chronik.client.security import AclBinding, AclFilter, add_acls, list_acls, set_password
from chronik.protocol.permissions import CLUSTER_NAME, AclOperation, AclResourceType
from chronik.security.sasl.scram_keys import ITERATIONS_MIN
from chronik.testing import Broker
from chronik.testing.ports import HOST
from chronik.tls.certificate_authority import CertificateAuthority
from tools.docs.benchmark_pages import keep_tables

NAME: Final = "security"
"""The name of the page and of the JSON file."""
PLAIN, AGAIN, TLS, LOGIN, WITH_ACLS = "no security", "no security, again", "TLS", "SASL, no TLS", "10,000 ACLs"
KAFKA, KAFKA_TLS = "Apache Kafka, no security", "Apache Kafka, TLS"

JAVA: Final = "produce by Java, MB/s"
JAVA_PRODUCER: Final = "org.apache.kafka.tools.ProducerPerformance"
JAVA_TIMES: Final = 5
"""Its load relative to librdkafka's, because its first second is slow."""

TLS_LEAST: Final = 0.5
"""The required ratio to plaintext."""
SAME_LEAST: Final = 0.97
"""A ratio below this, and below the noise of the same listener measured twice, counts as a cost."""

CIPHER: Final = "TLS_AES_128_GCM_SHA256"
OPENSSL: Final = f"""openssl_conf = default
[default]
ssl_conf = ssl
[ssl]
system_default = system
[system]
Ciphersuites = {CIPHER}
"""
"""Python's ssl module cannot select a TLS 1.3 cipher; OpenSSL's configuration can."""

USER, PASSWORD, MECHANISM = "bench", "bench", "SCRAM-SHA-256"
ACLS: Final = 10_000
ACLS_PER_REQUEST: Final = 1000
ANONYMOUS: Final = "User:ANONYMOUS"
LITERAL, PREFIXED, ALLOW = 3, 4, 3
AUTHORIZER: Final = {"authorizer.class.name": "standard"}
OWN_ACLS: Final = [
    AclBinding(AclResourceType.TOPIC, "chronik-bench-", PREFIXED, ANONYMOUS, "*", AclOperation.ALL, ALLOW),
    AclBinding(AclResourceType.CLUSTER, CLUSTER_NAME, LITERAL, ANONYMOUS, "*", AclOperation.CREATE, ALLOW),
    AclBinding(AclResourceType.GROUP, "*", LITERAL, ANONYMOUS, "*", AclOperation.ALL, ALLOW),
]


@dataclass(frozen=True)
class ListenerBenchmark:
    """A server listener to produce to and consume from, and its results."""

    name: str
    bootstrap: str
    pid: int
    security: dict[str, str] = field(default_factory=dict)
    figures: dict[str, list[float]] = field(default_factory=dict)
    """One value per round, by figure."""

    def cluster(self) -> ClusterClient:
        return ClusterClient(BootstrapAccess(self.bootstrap, parse_security(self.security)))

    def measure(self, records: int, size: int) -> None:
        topic = generate_name("security")
        with self.cluster() as cluster, create_temporary_topics(cluster, [topic]):
            written = produce.measure(
                ProduceLoad(self.bootstrap, topic, records, size, broker_pid=self.pid, security=self.security)
            )
            read = consume.measure(ConsumeLoad(self.bootstrap, topic, 1, records, self.pid, self.security))
        assert written.broker_cpu_s_per_million
        assert read.broker_cpu_s_per_million
        figures = {
            "produce, MB/s": written.mb_per_second,
            "fetch, MB/s": read.mb_per_second,
            "produce, records per broker CPU second": 1e6 / written.broker_cpu_s_per_million,
            "fetch, records per broker CPU second": 1e6 / read.broker_cpu_s_per_million,
        }
        for what, value in figures.items():
            self.figures.setdefault(what, []).append(value)

    def measure_java(self, folder: Path, records: int, size: int) -> None:
        """Measure Kafka's ProducerPerformance tool, whose first second includes the JVM's start."""
        topic, file = generate_name("security"), folder / "java.properties"
        file.write_text("\n".join(f"{name}={value}" for name, value in self._java_settings().items()))
        tool_arguments = [
            "--topic",
            topic,
            "--num-records",
            str(records),
            "--record-size",
            str(size),
            "--throughput",
            "-1",
        ]
        with self.cluster() as cluster, create_temporary_topics(cluster, [topic]):
            output = run_tool(JAVA_PRODUCER, *tool_arguments, "--producer.config", str(file))
        self.figures.setdefault(JAVA, []).append(float(re.findall(r"\(([\d.]+) MB/sec", output)[-1]))

    def _java_settings(self) -> dict[str, str]:
        settings = {"bootstrap.servers": self.bootstrap, "acks": "all", "batch.size": "262144", "linger.ms": "5"}
        if self.name not in (TLS, KAFKA_TLS):
            return settings
        truststore = {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.security["ssl.ca.location"]}
        return settings | {"security.protocol": "SSL", "ssl.cipher.suites": CIPHER} | truststore


# Servers


@contextmanager
def _broker_with_three_listeners(folder: Path, security: dict[str, str]) -> Iterator[list[ListenerBenchmark]]:
    """Start a broker with three listeners. The plaintext listener is yielded twice, to measure the noise."""
    listeners = {
        "listeners": f"PLAINTEXT://{HOST}:0,TLS://{HOST}:0,LOGIN://{HOST}:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL,LOGIN:SASL_PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "node.pem"),
        "sasl.enabled.mechanisms": MECHANISM,
    }
    login = {"security.protocol": "sasl_plaintext", "sasl.mechanism": MECHANISM}
    login |= {"sasl.username": USER, "sasl.password": PASSWORD}
    with _create_broker(folder / "three-ports", listeners) as broker:
        plain, tls, asks = (_listener_address(broker, name) for name in ("PLAINTEXT", "TLS", "LOGIN"))
        with ClusterClient(plain) as cluster:
            set_password(cluster, USER, PASSWORD, [MECHANISM], ITERATIONS_MIN)
        pid = broker.pid
        assert pid is not None
        ways = [
            ListenerBenchmark(PLAIN, plain, pid),
            ListenerBenchmark(AGAIN, plain, pid),
            ListenerBenchmark(TLS, tls, pid, security),
        ]
        yield [*ways, ListenerBenchmark(LOGIN, asks, pid, login)]


def _create_broker(folder: Path, config: dict[str, str]) -> Broker:
    """Return a broker as users run it, without the tests' recording of requests."""
    broker = Broker(folder, flush="os", broker=config)
    broker.records_requests = False
    return broker


def _listener_address(broker: Broker, listener: str) -> str:
    found = re.search(rf"answers Kafka clients on .*?{listener}://(\S+:\d+)", broker.log)
    assert found is not None
    return found[1]


@contextmanager
def _broker_with_acls(folder: Path) -> Iterator[list[ListenerBenchmark]]:
    """Create the ACLs while everything is allowed, then restart the broker with the authorizer's rules."""
    others = [
        AclBinding(
            AclResourceType.TOPIC, f"t{each}", LITERAL + each % 2, f"User:u{each}", "*", AclOperation.READ, ALLOW
        )
        for each in range(ACLS - len(OWN_ACLS))
    ]
    with Broker(folder / "guarded", flush="os", broker={**AUTHORIZER, "super.users": ANONYMOUS}) as broker:
        with ClusterClient(broker.bootstrap) as cluster:
            for first in range(0, len(others), ACLS_PER_REQUEST):
                add_acls(cluster, others[first : first + ACLS_PER_REQUEST])
            add_acls(cluster, OWN_ACLS)
            assert len(list_acls(cluster, AclFilter())) == ACLS
        broker.stop()
    with _create_broker(folder / "guarded", AUTHORIZER) as broker:
        assert broker.pid is not None
        yield [ListenerBenchmark(WITH_ACLS, broker.bootstrap, broker.pid)]


@contextmanager
def _kafka(folder: Path, security: dict[str, str]) -> Iterator[list[ListenerBenchmark]]:
    (folder / "kafka").mkdir()
    with ApacheKafka(
        folder / "kafka", jvm_options=DEFAULT_JVM_OPTIONS, keystore=folder / "node.pem", cipher=CIPHER
    ) as kafka:
        yield [
            ListenerBenchmark(KAFKA, kafka.bootstrap, kafka.pid),
            ListenerBenchmark(KAFKA_TLS, kafka.tls_bootstrap, kafka.pid, security),
        ]


@contextmanager
def run_servers(folder: Path, *, with_kafka: bool) -> Iterator[list[ListenerBenchmark]]:
    authority = CertificateAuthority("bench")
    (folder / "node.pem").write_bytes(authority.issue("CN=bench", [HOST]).keystore_pem)
    (folder / "ca.pem").write_bytes(authority.certificate_pem)
    (folder / "openssl.cnf").write_text(OPENSSL)
    os.environ["OPENSSL_CONF"] = str(folder / "openssl.cnf")  # for the broker process
    security = {"security.protocol": "ssl", "ssl.ca.location": str(folder / "ca.pem")}
    with ExitStack() as stack:
        ways = stack.enter_context(_broker_with_three_listeners(folder, security))
        ways += stack.enter_context(_broker_with_acls(folder))
        ways += stack.enter_context(_kafka(folder, security)) if with_kafka else []
        yield ways


# Report


@dataclass(frozen=True, slots=True)
class SecurityComparison:
    """The ratios of one comparison and its minimum, if any."""

    what: str
    ratios: list[float]
    least: float | None = None

    @property
    def is_met(self) -> bool:
        return self.least is None or median(self.ratios) >= self.least

    def row(self) -> list[Cell]:
        low, middle, high = quantiles(self.ratios, n=4) if len(self.ratios) > 1 else self.ratios * 3
        row: list[Cell] = [self.what, f"{middle:.2f}", f"{low:.2f} to {high:.2f}"]
        if self.least is None:
            return [*row, None, None]
        return [*row, f"at least {self.least:.2f}", format_verdict(self.is_met)]


def compare_listeners(ways: Sequence[ListenerBenchmark]) -> list[SecurityComparison]:
    by_name = {way.name: way.figures for way in ways}
    found = []
    for what in by_name[AGAIN]:
        is_rate, compare = what.endswith("/s"), partial(_ratios, by_name, what=what)
        itself = compare(AGAIN, PLAIN)
        same = min(SAME_LEAST, quantiles(itself, n=4)[0]) if len(itself) > 1 else 0.0
        found.append(SecurityComparison(f"{AGAIN} / {PLAIN}: {what}", itself))
        found.append(
            SecurityComparison(f"{TLS} / {PLAIN}: {what}", compare(TLS, PLAIN), TLS_LEAST if is_rate else None)
        )
        found += [
            SecurityComparison(f"{name} / {PLAIN}: {what}", compare(name, PLAIN), same) for name in (LOGIN, WITH_ACLS)
        ]
        if KAFKA in by_name:
            found.append(SecurityComparison(f"{KAFKA_TLS} / {KAFKA}: {what}", compare(KAFKA_TLS, KAFKA)))
            found.append(SecurityComparison(f"{TLS} / {KAFKA_TLS}: {what}", compare(TLS, KAFKA_TLS), 1.0))
    if JAVA in by_name[TLS]:
        found.append(SecurityComparison(f"{TLS} / {PLAIN}: {JAVA}", _ratios(by_name, TLS, PLAIN, JAVA), TLS_LEAST))
        found.append(SecurityComparison(f"{TLS} / {KAFKA_TLS}: {JAVA}", _ratios(by_name, TLS, KAFKA_TLS, JAVA), 1.0))
    return found


def _ratios(by_name: Mapping[str, Mapping[str, list[float]]], name: str, other: str, what: str) -> list[float]:
    return [value / base for value, base in zip(by_name[name][what], by_name[other][what], strict=True)]


def build_tables(ways: Sequence[ListenerBenchmark], comparisons: Sequence[SecurityComparison]) -> list[ResultTable]:
    figure_names = list(ways[0].figures)
    medians: list[list[Cell]] = [[way.name, *(_median(way, what) for what in figure_names)] for way in ways]
    return [
        ResultTable("Throughput", ["", *figure_names], medians),
        ResultTable(
            "Comparisons", ["", "ratio", "quartiles", "target", ""], [comparison.row() for comparison in comparisons]
        ),
    ]


def _median(way: ListenerBenchmark, what: str) -> float | None:
    return median(way.figures[what]) if what in way.figures else None


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.security", description="Measure the cost of security.")
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--records", type=int, default=200_000, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--size", type=int, default=1000, metavar="BYTES", help="record size (default: %(default)s)")
    parser.add_argument("--java-rounds", type=int, default=5, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--without-kafka", action="store_true", help="measure Chronik alone")
    parser.add_argument("--folder", type=Path, default=ROOT / "build", metavar="DIR", help="directory for data")
    add_keep_option(parser)
    arguments = parser.parse_args(argv)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    missing = "--without-kafka" if arguments.without_kafka else kafka_unavailable_reason()
    load_before = os.getloadavg()[0]
    with (
        TemporaryDirectory(prefix="security-", dir=arguments.folder.resolve(), ignore_cleanup_errors=True) as folder,
        run_servers(Path(folder), with_kafka=missing is None) as ways,
    ):
        by_name = {way.name: way for way in ways}
        for way in ways:
            way.measure(arguments.records, arguments.size)  # warm-up: Java compiles hot code
            way.figures.clear()
        for round_number in range(arguments.rounds):
            print_progress(f"round {round_number + 1} of {arguments.rounds}")
            for name in Random(round_number).sample(
                list(by_name), len(by_name)
            ):  # random order, to avoid order effects
                by_name[name].measure(arguments.records, arguments.size)
        for round_number in range(arguments.java_rounds if missing is None else 0):
            print_progress(f"Java's client: round {round_number + 1} of {arguments.java_rounds}")
            for name in Random(round_number).sample([PLAIN, TLS, KAFKA, KAFKA_TLS], 4):
                by_name[name].measure_java(Path(folder), JAVA_TIMES * arguments.records, arguments.size)
    results = compare_listeners(ways)
    run = describe_run(f"Medians of {arguments.rounds} interleaved rounds. {describe_kafka(missing)}.", load_before)
    tables = build_tables(ways, results)
    print(format_report(run, tables))
    if arguments.keep:
        keep_tables(NAME, run, tables)
    return 0 if all(verdict.is_met for verdict in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
