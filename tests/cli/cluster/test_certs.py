"""`chronik cluster certs`: a CA and signed certificates in private files; existing files are kept."""

from __future__ import annotations

import json
import ssl
import stat
from pathlib import Path

import pytest

from chronik.cli.main import main
from chronik.tls.contexts import ReloadableTlsContext
from chronik.tls.settings import CLIENT_AUTH_REQUIRED, PemSource, TlsSettings


def test_certs_creates_ca_and_certificates_of_nodes_and_client(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "certs"
    arguments = ["cluster", "certs", str(folder), "--nodes", "2", "--hosts", "a.example,10.0.0.2", "--json"]
    assert main(arguments) == 0
    made = ["ca.pem", "ca-key.pem", "node1.pem", "node2.pem", "client.pem"]
    assert json.loads(capsys.readouterr().out)["made"] == made
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in ("node1", "node2", "client"):
        store = PemSource("store", str(folder / f"{name}.pem"))
        ReloadableTlsContext(
            name, TlsSettings(store, store, PemSource("trust", str(folder / "ca.pem")), CLIENT_AUTH_REQUIRED)
        )
    shown = ssl._ssl._test_decode_cert(str(folder / "node2.pem"))  # type: ignore[attr-defined]
    assert ("IP Address", "10.0.0.2") in shown["subjectAltName"]
    assert ("DNS", "localhost") in shown["subjectAltName"]
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert main(["cluster", "certs", str(folder), "--nodes", "3"]) == 0
    assert "node3.pem" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--nodes", "0"], "--nodes 0: expected 1 to 64"),
        (["--hosts", "a,b"], "--hosts a,b: expected 3 hosts, one per node"),
        (["--client", "../x"], "--client ../x: expected letters"),
    ],
)
def test_certs_rejects_invalid_options_without_creating_files(
    more: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", "certs", str(tmp_path / "certs"), *more]) != 0
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "certs").exists()


def test_certs_rejects_directory_with_incomplete_ca(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "certs", str(tmp_path)]) == 0
    (tmp_path / "ca-key.pem").unlink()
    assert main(["cluster", "certs", str(tmp_path), "--nodes", "4"]) != 0
    assert "ca-key.pem does not: restore it" in capsys.readouterr().err
