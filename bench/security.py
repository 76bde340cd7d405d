"""`python -m bench.security` (`make bench-security`): what TLS, a login and 10,000 ACLs cost, in turn in each round.

One broker has a port without security, one with TLS (1.3, AES-128-GCM) and one with a login; another broker has 10,000
ACLs, one of which lets its client in. A ratio is taken within a round; more than 1 is better. Exit code 1 when TLS
writes or reads less than half of what is done without, when a login or ACLs cost more than the same port measured
twice, or when TLS is behind Apache Kafka's with the same settings.

Two clients write, librdkafka and Java's, because TLS is not the same work with both: librdkafka makes records of TLS of
their own of a fifth of Kafka's (some bytes, and then 1,000), and with Java's it is faster beside plaintext.
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

from bench.apache_kafka import AS_SHIPPED, ApacheKafka, run_tool, why_missing
from bench.beside_kafka import say
from bench.servers import ROOT
from bench.tables import machine
from chronik.bench import consume, produce
from chronik.bench.clients import temporary_topics, unique_name
from chronik.bench.consume import ConsumeLoad
from chronik.bench.produce import ProduceLoad
from chronik.bench.report import number
from chronik.bench.rounds import MISSED, markdown_table
from chronik.client.access.settings import Access, parse_security
from chronik.client.cluster import Cluster
from chronik.client.security.acls import AclBinding, AclFilter, add_acls, list_acls
from chronik.client.security.users import set_password
from chronik.protocol.permissions import CLUSTER_NAME, Operation, ResourceType
from chronik.security.sasl.scram_keys import ITERATIONS_MIN
from chronik.testing import Broker
from chronik.testing.ports import HOST
from chronik.tls.issuing import Authority

PLAIN, AGAIN, TLS, LOGIN, RIGHTS = "no security", "no security, again", "TLS", "login, no TLS", "10,000 ACLs"
KAFKA, KAFKA_TLS = "Apache Kafka, no security", "Apache Kafka, TLS"

JAVA: Final = "produce by Java, MB/s"
JAVA_PRODUCER: Final = "org.apache.kafka.tools.ProducerPerformance"
JAVA_TIMES: Final = 5
"""It writes so many times what librdkafka does: its first second is slow."""

TLS_LEAST: Final = 0.5
"""Of what is done without."""
SAME: Final = 0.97
"""Below it, and below what the same port shows beside itself, something has a price."""

CIPHER: Final = "TLS_AES_128_GCM_SHA256"
OPENSSL: Final = f"""openssl_conf = default
[default]
ssl_conf = ssl
[ssl]
system_default = system
[system]
Ciphersuites = {CIPHER}
"""
"""Python's ssl has no call to choose a cipher of TLS 1.3."""

USER, PASSWORD, MECHANISM = "bench", "bench", "SCRAM-SHA-256"
ACLS: Final = 10_000
PORTION: Final = 1000
ANONYMOUS: Final = "User:ANONYMOUS"
LITERAL, PREFIXED, ALLOW = 3, 4, 3
AUTHORIZER: Final = {"authorizer.class.name": "standard"}
OWN: Final = [
    AclBinding(ResourceType.TOPIC, "chronik-bench-", PREFIXED, ANONYMOUS, "*", Operation.ALL, ALLOW),
    AclBinding(ResourceType.CLUSTER, CLUSTER_NAME, LITERAL, ANONYMOUS, "*", Operation.CREATE, ALLOW),
    AclBinding(ResourceType.GROUP, "*", LITERAL, ANONYMOUS, "*", Operation.ALL, ALLOW),
]


@dataclass(frozen=True)
class Way:
    """To write and to read."""

    name: str
    bootstrap: str
    pid: int
    security: dict[str, str] = field(default_factory=dict)
    figures: dict[str, list[float]] = field(default_factory=dict)
    """A value for each round."""

    def cluster(self) -> Cluster:
        return Cluster(Access(self.bootstrap, parse_security(self.security)))

    def measure(self, records: int, size: int) -> None:
        topic = unique_name("security")
        with self.cluster() as cluster, temporary_topics(cluster, [topic]):
            written = produce.measure(
                ProduceLoad(self.bootstrap, topic, records, size, broker_pid=self.pid, security=self.security)
            )
            read = consume.measure(ConsumeLoad(self.bootstrap, topic, 1, records, self.pid, self.security))
        assert written.broker_cpu_s_per_million
        assert read.broker_cpu_s_per_million
        figures = {
            "produce, MB/s": written.mb_per_second,
            "fetch, MB/s": read.mb_per_second,
            "produce, records per broker CPU": 1e6 / written.broker_cpu_s_per_million,
            "fetch, records per broker CPU": 1e6 / read.broker_cpu_s_per_million,
        }
        for what, value in figures.items():
            self.figures.setdefault(what, []).append(value)

    def measure_java(self, folder: Path, records: int, size: int) -> None:
        """By Kafka's own tool, whose first second is Java's."""
        topic, file = unique_name("security"), folder / "java.properties"
        file.write_text("\n".join(f"{name}={value}" for name, value in self._java_settings().items()))
        words = ["--topic", topic, "--num-records", str(records), "--record-size", str(size), "--throughput", "-1"]
        with self.cluster() as cluster, temporary_topics(cluster, [topic]):
            said = run_tool(JAVA_PRODUCER, *words, "--producer.config", str(file))
        self.figures.setdefault(JAVA, []).append(float(re.findall(r"\(([\d.]+) MB/sec", said)[-1]))

    def _java_settings(self) -> dict[str, str]:
        settings = {"bootstrap.servers": self.bootstrap, "acks": "all", "batch.size": "262144", "linger.ms": "5"}
        if self.name not in (TLS, KAFKA_TLS):
            return settings
        trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.security["ssl.ca.location"]}
        return settings | {"security.protocol": "SSL", "ssl.cipher.suites": CIPHER} | trusted


# What is measured


@contextmanager
def _three_ports(folder: Path, security: dict[str, str]) -> Iterator[list[Way]]:
    """Two of them are the same one."""
    listeners = {
        "listeners": f"PLAINTEXT://{HOST}:0,TLS://{HOST}:0,LOGIN://{HOST}:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL,LOGIN:SASL_PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "node.pem"),
        "sasl.enabled.mechanisms": MECHANISM,
    }
    login = {"security.protocol": "sasl_plaintext", "sasl.mechanism": MECHANISM}
    login |= {"sasl.username": USER, "sasl.password": PASSWORD}
    with _measured(folder / "three-ports", listeners) as broker:
        plain, tls, asks = (_at(broker, name) for name in ("PLAINTEXT", "TLS", "LOGIN"))
        with Cluster(plain) as cluster:
            set_password(cluster, USER, PASSWORD, [MECHANISM], ITERATIONS_MIN)
        pid = broker.pid
        assert pid is not None
        ways = [Way(PLAIN, plain, pid), Way(AGAIN, plain, pid), Way(TLS, tls, pid, security)]
        yield [*ways, Way(LOGIN, asks, pid, login)]


def _measured(folder: Path, config: dict[str, str]) -> Broker:
    """Returns a broker as users have it: without the list of requests that tests look at."""
    broker = Broker(folder, flush="os", broker=config)
    broker.keeps_requests = False
    return broker


def _at(broker: Broker, listener: str) -> str:
    found = re.search(rf"answers Kafka clients on .*?{listener}://(\S+:\d+)", broker.log)
    assert found is not None
    return found[1]


@contextmanager
def _guarded(folder: Path) -> Iterator[list[Way]]:
    """Makes the ACLs while everybody may do everything, and then starts the broker again."""
    others = [
        AclBinding(ResourceType.TOPIC, f"t{each}", LITERAL + each % 2, f"User:u{each}", "*", Operation.READ, ALLOW)
        for each in range(ACLS - len(OWN))
    ]
    with Broker(folder / "guarded", flush="os", broker={**AUTHORIZER, "super.users": ANONYMOUS}) as broker:
        with Cluster(broker.bootstrap) as cluster:
            for first in range(0, len(others), PORTION):
                add_acls(cluster, others[first : first + PORTION])
            add_acls(cluster, OWN)
            assert len(list_acls(cluster, AclFilter())) == ACLS
        broker.stop()
    with _measured(folder / "guarded", AUTHORIZER) as broker:
        assert broker.pid is not None
        yield [Way(RIGHTS, broker.bootstrap, broker.pid)]


@contextmanager
def _kafka(folder: Path, security: dict[str, str]) -> Iterator[list[Way]]:
    (folder / "kafka").mkdir()
    with ApacheKafka(folder / "kafka", jvm_options=AS_SHIPPED, keystore=folder / "node.pem", cipher=CIPHER) as kafka:
        yield [Way(KAFKA, kafka.bootstrap, kafka.pid), Way(KAFKA_TLS, kafka.tls_bootstrap, kafka.pid, security)]


@contextmanager
def running(folder: Path, *, with_kafka: bool) -> Iterator[list[Way]]:
    authority = Authority("bench")
    (folder / "node.pem").write_bytes(authority.issue("CN=bench", [HOST]).both)
    (folder / "ca.pem").write_bytes(authority.certificate)
    (folder / "openssl.cnf").write_text(OPENSSL)
    os.environ["OPENSSL_CONF"] = str(folder / "openssl.cnf")  # for the broker that is started
    security = {"security.protocol": "ssl", "ssl.ca.location": str(folder / "ca.pem")}
    with ExitStack() as stack:
        ways = stack.enter_context(_three_ports(folder, security))
        ways += stack.enter_context(_guarded(folder))
        ways += stack.enter_context(_kafka(folder, security)) if with_kafka else []
        yield ways


# What is told


@dataclass(frozen=True, slots=True)
class Verdict:
    what: str
    ratios: list[float]
    least: float | None = None

    @property
    def is_met(self) -> bool:
        return self.least is None or median(self.ratios) >= self.least

    def row(self) -> list[str]:
        low, middle, high = quantiles(self.ratios, n=4) if len(self.ratios) > 1 else self.ratios * 3
        wanted = "" if self.least is None else f"at least {self.least:.2f}: {'met' if self.is_met else MISSED}"
        return [self.what, f"{middle:.2f}", f"{low:.2f} to {high:.2f}", wanted]


def verdicts(ways: Sequence[Way]) -> list[Verdict]:
    by_name = {way.name: way.figures for way in ways}
    found = []
    for what in by_name[AGAIN]:
        is_rate, beside = what.endswith("/s"), partial(_ratios, by_name, what=what)
        itself = beside(AGAIN, PLAIN)
        same = min(SAME, quantiles(itself, n=4)[0]) if len(itself) > 1 else 0.0
        found.append(Verdict(f"{AGAIN} beside itself: {what}", itself))
        found.append(Verdict(f"{TLS} beside {PLAIN}: {what}", beside(TLS, PLAIN), TLS_LEAST if is_rate else None))
        found += [Verdict(f"{name} beside {PLAIN}: {what}", beside(name, PLAIN), same) for name in (LOGIN, RIGHTS)]
        if KAFKA in by_name:
            found.append(Verdict(f"{KAFKA_TLS} beside without: {what}", beside(KAFKA_TLS, KAFKA)))
            found.append(Verdict(f"{TLS} beside {KAFKA_TLS}: {what}", beside(TLS, KAFKA_TLS), 1.0))
    if JAVA in by_name[TLS]:
        found.append(Verdict(f"{TLS} beside {PLAIN}: {JAVA}", _ratios(by_name, TLS, PLAIN, JAVA), TLS_LEAST))
        found.append(Verdict(f"{TLS} beside {KAFKA_TLS}: {JAVA}", _ratios(by_name, TLS, KAFKA_TLS, JAVA), 1.0))
    return found


def _ratios(by_name: Mapping[str, Mapping[str, list[float]]], name: str, other: str, what: str) -> list[float]:
    return [value / base for value, base in zip(by_name[name][what], by_name[other][what], strict=True)]


def _shown(way: Way, what: str) -> str:
    return number(median(way.figures[what])) if what in way.figures else ""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.security", description="What security costs.")
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--records", type=int, default=200_000, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--size", type=int, default=1000, metavar="BYTES", help="of a record (default: %(default)s)")
    parser.add_argument("--java-rounds", type=int, default=5, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--without-kafka", action="store_true", help="measure Chronik alone")
    parser.add_argument("--folder", type=Path, default=ROOT / "build", metavar="DIR", help="for data")
    arguments = parser.parse_args(argv)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    missing = "as asked" if arguments.without_kafka else why_missing()
    load_before = os.getloadavg()[0]
    with (
        TemporaryDirectory(prefix="security-", dir=arguments.folder.resolve(), ignore_cleanup_errors=True) as folder,
        running(Path(folder), with_kafka=missing is None) as ways,
    ):
        by_name = {way.name: way for way in ways}
        for way in ways:
            way.measure(arguments.records, arguments.size)  # Java compiles what is run often
            way.figures.clear()
        for turn in range(arguments.rounds):
            say(f"round {turn + 1} of {arguments.rounds}")
            for name in Random(turn).sample(list(by_name), len(by_name)):  # none always follows the same one
                by_name[name].measure(arguments.records, arguments.size)
        for turn in range(arguments.java_rounds if missing is None else 0):
            say(f"Java's client: round {turn + 1} of {arguments.java_rounds}")
            for name in Random(turn).sample([PLAIN, TLS, KAFKA, KAFKA_TLS], 4):
                by_name[name].measure_java(Path(folder), JAVA_TIMES * arguments.records, arguments.size)
    left_out = "" if missing is None else f" Apache Kafka is left out: {missing}."
    print(f"Measured on {machine()}; load before: {load_before:.2f}. {arguments.rounds} rounds in turn.{left_out}\n")
    whats = list(ways[0].figures)
    rows = [[way.name, *(_shown(way, what) for what in whats)] for way in ways]
    print(markdown_table(["median", *whats], rows))
    judged = verdicts(ways)
    print(f"\n{markdown_table(['beside', 'ratio', 'quartiles', ''], [verdict.row() for verdict in judged])}")
    return 0 if all(verdict.is_met for verdict in judged) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
