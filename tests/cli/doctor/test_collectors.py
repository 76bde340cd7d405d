"""Collectors on real data directories, config files and certificates; they change nothing."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from chronik.cli.doctor.config_facts import collect_config_facts, is_loopback, parse_certificates
from chronik.cli.doctor.directory_facts import NODE_IS_RUNNING, collect_directory_facts
from chronik.cli.doctor.local_facts import DataDirectoryFacts
from chronik.cli.doctor.target import collect_disk_facts, collect_limit_facts
from chronik.cli.main import main
from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.config import load_config
from chronik.tls.certificate_authority import CERTIFICATE_DAYS, CertificateAuthority
from chronik.tls.certificate_dates import InvalidCertificate
from tests.cli.monitoring.in_process_node import run_node_in_process


def collect(path: Path, *, deep: bool = False) -> DataDirectoryFacts:
    return collect_directory_facts(path, None, verify_checksums=deep, progress=lambda done, total: None)


# Data directories


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a stopped node with five batches in the only partition of `orders`."""
    folder = tmp_path_factory.mktemp("filled") / "data"
    with run_node_in_process(folder) as running, ClusterClient(running.bootstrap) as cluster:
        create_topics(cluster, [NewTopic("orders", 1)])
        for number in range(5):
            Producer(cluster).send("orders", [OutgoingRecord(f"tea {number}".encode() * 50)])
        assert collect(folder).logs_unseen == NODE_IS_RUNNING, "while it runs"
    return folder


@pytest.fixture
def folder(filled: Path, tmp_path: Path) -> Path:
    import shutil

    return Path(shutil.copytree(filled, tmp_path / "data"))


def log_file(folder: Path) -> Path:
    [path] = (each for each in (folder / "topics").rglob("*.log") if each.stat().st_size)
    return path


def state(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_intact_data_directory_has_no_problems(folder: Path) -> None:
    before = state(folder)
    facts = collect(folder, deep=True)
    assert (facts.node_id, facts.mode, facts.problem, facts.identity_problem) == (1, "standalone", None, None)
    assert (facts.logs, facts.logs_unseen, facts.metadata_problem) == ((), None, None)
    assert facts.level == facts.level_supported
    assert facts.partitions >= 1
    assert state(folder) == before, "nothing is written"


def test_unacknowledged_bytes_at_log_end_are_reported_as_torn(folder: Path) -> None:
    with log_file(folder).open("ab") as file:
        file.write(b"half of a batch" + bytes(4096))
    before = state(folder)
    [log] = collect(folder).logs
    assert (log.partition, log.torn_bytes, log.missing) == ("orders-0", len(b"half of a batch"), None)
    assert state(folder) == before


def test_preallocated_zeros_are_not_torn(folder: Path) -> None:
    with log_file(folder).open("ab") as file:
        file.write(bytes(4096))
    assert collect(folder).logs == ()


def test_truncated_synced_records_are_reported_as_missing(folder: Path) -> None:
    path = log_file(folder)
    os.truncate(path, path.stat().st_size * 3 // 5)
    [log] = collect(folder).logs
    assert log.missing == (3, 5)


def test_deep_check_finds_corrupt_batch(folder: Path) -> None:
    path = log_file(folder)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    [log] = collect(folder, deep=True).logs
    assert log.damaged == ("offsets 2 to 2",)
    assert collect(folder).logs == (), "without deep, only bytes after the last sync are verified"


def test_missing_invalid_or_newer_identity_is_a_problem(folder: Path) -> None:
    identity = folder / "node.json"
    report = json.loads(identity.read_bytes())
    identity.write_text(json.dumps(report | {"format": 99}))
    assert "format 99" in str(collect(folder).identity_problem)
    identity.write_text("{")
    assert collect(folder).identity_problem is not None
    identity.unlink()
    assert "has no node.json" in str(collect(folder).identity_problem)


def test_damaged_metadata_is_a_problem(folder: Path) -> None:
    for path in (folder / "__meta").iterdir():
        if path.stat().st_size > 40:
            data = bytearray(path.read_bytes())
            data[20] ^= 0xFF
            path.write_bytes(data)
    assert collect(folder).metadata_problem is not None


def test_directory_without_node_files_is_rejected(tmp_path: Path) -> None:
    assert collect(tmp_path / "nowhere").problem == "no such directory"
    assert collect(tmp_path).problem is None, "a node can use an empty directory"
    (tmp_path / "photo.jpg").touch()
    assert "not the data directory" in str(collect(tmp_path).problem)


def test_expected_identity_comes_from_config(folder: Path) -> None:
    config = load_config(None, {}, node_id="2", data_dir=folder)
    facts = collect_directory_facts(folder, config, verify_checksums=False, progress=lambda done, total: None)
    assert (facts.node_id, facts.expected_node, facts.expected_mode) == (1, 2, "standalone")


def test_doctor_reports_lost_records_of_directory(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--dir", str(folder), "--json"]) == 0, capsys.readouterr().out
    os.truncate(log_file(folder), 100)
    capsys.readouterr()
    assert main(["doctor", "--dir", str(folder), "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert [(each["check"], each["severity"]) for each in report["findings"]] == [("lost-records", "error")]
    assert main(["doctor", "--dir", str(folder / "nowhere")]) == 1
    assert main(["doctor", "--deep"]) == 1
    assert "--deep requires a data directory" in capsys.readouterr().err


# Config files


def config_at(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_all_unknown_config_keys_are_reported(tmp_path: Path) -> None:
    path = config_at(tmp_path / "n.toml", 'datadir = "x"\nkafak = "y"\n[broker]\n"num.partition" = 1\n')
    facts, config = collect_config_facts(path)
    assert config is None
    assert [word for word in ("datadir", "kafak", "num.partition") if word not in " ".join(facts.problems)] == []


def test_unparsable_config_file_is_one_problem(tmp_path: Path) -> None:
    for text in ("node_id = ", 'node_id = "x"'):
        facts, config = collect_config_facts(config_at(tmp_path / "n.toml", text))
        assert (config, len(facts.problems)) == (None, 1)
    assert len(collect_config_facts(tmp_path / "nowhere.toml")[0].problems) == 1


def test_listener_facts_are_collected_from_config(tmp_path: Path) -> None:
    path = config_at(
        tmp_path / "n.toml",
        'cluster_secret = "s"\n[broker]\n"metric.reporters" = "x"\n"authorizer.class.name" = "standard"\n'
        '"listeners" = "IN://127.0.0.1:9092,OUT://0.0.0.0:9093"\n'
        '"advertised.listeners" = "IN://localhost:9092,OUT://no-such-host.invalid:9093"\n'
        '"listener.security.protocol.map" = "IN:PLAINTEXT,OUT:PLAINTEXT"\n',
    )
    path.chmod(0o644)
    facts, config = collect_config_facts(path)
    assert config is not None, facts.problems
    inside, outside = facts.listeners
    assert (inside.is_loopback, inside.advertises_loopback, inside.unresolved) == (True, True, None)
    assert (outside.is_loopback, outside.advertises_loopback) == (False, False)
    assert outside.unresolved
    assert (facts.has_authorizer, facts.has_secrets, facts.readable_by_others) == (True, True, True)
    assert facts.without_effect == ("metric.reporters",)


def test_loopback_addresses_are_recognized() -> None:
    assert [is_loopback(each) for each in ("127.0.0.1", "127.9.9.9", "::1", "localhost")] == [True] * 4
    assert [is_loopback(each) for each in ("0.0.0.0", "::", "10.0.0.1", "example.org")] == [False] * 4


# Certificates


def test_certificate_subject_and_expiry_are_parsed(tmp_path: Path) -> None:
    issued = CertificateAuthority("our CA").issue("CN=node1,O=example", ["node1.example.org"])
    store = tmp_path / "node1.pem"
    store.write_bytes(issued.keystore_pem)
    [facts] = parse_certificates(store.read_text(), "node1.pem")
    expected = datetime.now(UTC) + timedelta(days=CERTIFICATE_DAYS)
    assert (facts.subject, facts.where) == ("node1", "node1.pem")
    assert abs(facts.not_after_s - expected.timestamp()) < 3600
    config = config_at(tmp_path / "n.toml", 'http = "127.0.0.1:0"\nhttp_keystore = "node1.pem"\n')
    found, _ = collect_config_facts(config)
    assert [each.subject for each in found.certificates] == ["node1"]
    assert found.certificate_problems == ()


def test_expiry_after_2049_is_parsed() -> None:
    [facts] = parse_certificates(
        CertificateAuthority("CA").issue("CN=far", days=365 * 40).certificate.decode(), "far.pem"
    )
    assert facts.not_after_s > datetime(2060, 1, 1, tzinfo=UTC).timestamp()


def test_invalid_certificate_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InvalidCertificate, match=r"x\.pem: not a valid certificate"):
        parse_certificates("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----", "x.pem")
    config = config_at(tmp_path / "n.toml", 'http_keystore = "nowhere.pem"\n')
    assert "nowhere.pem" in collect_config_facts(config)[0].certificate_problems[0]


# Operating system


def test_disk_and_limit_facts_are_collected(tmp_path: Path) -> None:
    disk = collect_disk_facts(tmp_path / "not" / "yet")
    assert disk is not None
    assert 0 < disk.free_bytes < disk.bytes
    own, ours = collect_limit_facts(None, "us"), collect_limit_facts(os.getpid(), "us")
    assert own is not None
    assert own.open_files > own.connections > 0
    if ours is not None:  # systems with /proc
        assert ours.open_files <= own.open_files
    assert collect_limit_facts(2**22 + 1, "nobody") is None
