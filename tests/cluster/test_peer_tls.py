"""TLS between three nodes, and the migration of a running cluster to it, node by node."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer

from chronik.cli.main import main
from chronik.testing.cluster import Cluster


def write_and_check(cluster: Cluster, topic: str, count: int = 200) -> None:
    """Write records that all three nodes must replicate."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    failures = []
    for number in range(count):
        producer.produce(topic, b"%d" % number, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(60) == 0
    assert not failures


def test_cluster_switches_to_tls_by_rolling_restart(tmp_path: Path) -> None:
    certs = tmp_path / "certs"
    assert main(["cluster", "certs", str(certs), "--nodes", "3"]) == 0
    with Cluster(3, tmp_path / "cluster") as cluster:
        cluster.wait_until_ready()
        write_and_check(cluster, "topic")
        for mode in ("allowed", "required"):
            for node_id, node in cluster.nodes.items():
                node.configure(
                    peer_keystore=str(certs / f"node{node_id}.pem"),
                    peer_truststore=str(certs / "ca.pem"),
                    peer_tls=mode,
                )
                node.restart()
                cluster.wait_until_ready()
                write_and_check(cluster, "topic")
        (certs / "node3.pem").rename(certs / "gone.pem")
        cluster[2].kill()
        cluster[2].start()
        cluster.wait_until_ready()
        write_and_check(cluster, "topic")
        said = "peer listener: certificate reload failed"
        cluster.wait_until(lambda: None if said in cluster[3].log else "not logged", f"node 3 to log {said!r}")
