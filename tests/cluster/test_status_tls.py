"""Nodes whose HTTP port uses TLS: commands can connect, and renewed certificates are reloaded."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import pytest

from chronik.config import Address
from chronik.console.http_client import NodeRequestError, create_pinned_context, http_get
from chronik.testing.cluster import Cluster
from chronik.testing.control import BrokerFailed
from tests.cluster.replication_helpers import wait_for
from tests.cluster.test_standalone_import import chronik
from tests.tls.certificates import certificate_authority, client_context, issue_certificate, replace_file

pytestmark = pytest.mark.xdist_group("cluster")

TIMEOUT_S = 10.0


def local_folder(folder: Path, http: Address, kafka: str, **more: str) -> Path:
    """Create a directory like that of `chronik cluster up` for a running node."""
    folder.mkdir()
    lines = {"node_id": 1, "kafka": kafka, "http": str(http), **more}
    (folder / "node1.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items()))
    return folder


def status_in(folder: Path, *more: str) -> str:
    output = chronik("cluster", "status", "--dir", str(folder), "--json", *more)
    assert output.returncode == 0, output.stderr
    return str(json.loads(output.stdout)["nodes"][0]["status"])


def can_connect(address: Address, tls: ssl.SSLContext) -> bool:
    try:
        return http_get(address, "/healthz", TIMEOUT_S, None, tls)[0] == 200
    except NodeRequestError:
        return False


def test_status_over_tls_requires_authentication(tmp_path: Path) -> None:
    keystore = replace_file(tmp_path / "node.pem", issue_certificate("CN=node").keystore_pem)
    ca = replace_file(tmp_path / "ca.pem", certificate_authority().certificate_pem)
    client = replace_file(tmp_path / "client.pem", issue_certificate("CN=operator").keystore_pem)
    with Cluster(1, http_keystore=keystore, http_truststore=ca) as cluster:
        (node,) = cluster.nodes.values()
        assert node.status()["node_id"] == 1
        with pytest.raises(NodeRequestError):
            http_get(node.http, "/healthz", TIMEOUT_S)
        anybody = client_context(tmp_path)
        assert http_get(node.http, "/healthz", TIMEOUT_S, None, anybody)[0] == 200
        assert http_get(node.http, "/metrics", TIMEOUT_S, None, anybody)[0] == 401
        folder = local_folder(tmp_path / "local", node.http, node.bootstrap, http_keystore=keystore, http_truststore=ca)
        assert status_in(folder) == "online", "with the node's own config file"
        settings = tmp_path / "operator.properties"
        settings.write_text(f"ssl.truststore.location={ca}\nssl.keystore.location={client}\n")
        assert status_in(folder, "--client-config", str(settings)) == "online"
        settings.write_text(f"ssl.truststore.location={ca}\n")
        assert status_in(folder, "--client-config", str(settings)) == "down", "no client certificate"

        replace_file(Path(keystore), issue_certificate("CN=renewed").keystore_pem)
        renewed = create_pinned_context(Path(keystore), with_client_certificate=False)
        wait_for("the new certificate", lambda: can_connect(node.http, renewed))
        assert "the HTTP port: certificate reloaded" in node.log


def test_node_rejects_invalid_certificate_file(tmp_path: Path) -> None:
    cluster = Cluster(1, http_keystore=str(tmp_path / "none.pem"))
    with pytest.raises(BrokerFailed, match=r"http_keystore.*none\.pem"), cluster:
        pass
