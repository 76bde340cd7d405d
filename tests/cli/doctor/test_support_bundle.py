"""A support bundle contains no secrets, in any encoding."""

from __future__ import annotations

import base64
import json
import stat
import tarfile
from pathlib import Path
from urllib.parse import quote

import pytest

from chronik.cli.doctor.findings import note_finding
from chronik.cli.doctor.local_facts import LocalFacts
from chronik.cli.doctor.support_bundle import (
    LOG_BYTES_MAX,
    REDACTED,
    BundleContents,
    Redactor,
    find_secrets,
    is_secret_name,
    redact_config,
    redact_secret_patterns,
    write_bundle,
)
from chronik.cli.main import main
from chronik.cli.monitoring.node_pages import NodePages
from chronik.client.access.settings import ClientSecurity
from tests.cli.monitoring.healthy_facts import cluster

SECRETS = {
    "cluster": "cluster-Secret/Value+1=",
    "http": "http-token-value",
    "keystore": "keystore-pass-Word",
    "jaas": "jaas-pässword-9",
    "plain": "p1",
    "inline key": "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
    "client": "client-login-password",
    "client key": "client-key-passphrase",
    "environment": "from-the-environment",
    "unknown": "a-plugin-credential",
    "delegation": "hmac-of-a-token",
}

CONFIG = f"""
node_id = 1
data_dir = "data"
cluster_secret = "{SECRETS["cluster"]}"
http = "127.0.0.1:8080"
http_token = "{SECRETS["http"]}"

[broker]
"num.partitions" = 3
"ssl.key.password" = "{SECRETS["keystore"]}"
"ssl.keystore.key" = "-----BEGIN PRIVATE KEY-----\\n{SECRETS["inline key"]}\\n-----END PRIVATE KEY-----"
"listener.name.clients.plain.sasl.jaas.config" = 'PlainLoginModule required user_ada="{SECRETS["jaas"]}" password="{SECRETS["plain"]}";'
"plugin.credential" = "{SECRETS["unknown"]}"
"delegation.token.secret.key" = "{SECRETS["delegation"]}"
"""  # noqa: E501

LOG = "\n".join(
    [
        *(f"INFO refused: {secret}, and goes on" for secret in SECRETS.values()),
        *(f"INFO in base64 {base64.b64encode(secret.encode()).decode()}" for secret in SECRETS.values()),
        *(f"INFO GET /?token={quote(secret, safe='')}" for secret in SECRETS.values()),
        *(json.dumps({"message": secret}) for secret in SECRETS.values()),
        "Authorization: Bearer somebody-elses-token",
        "connecting to postgres://ada:somebody-elses-password@db/orders",
        'sasl.jaas.config = x required username="ada" password="somebody-elses-jaas";',
        '{"password": "somebody-elses-json", "topic": "orders"}',
        "token eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ.c29tZWJvZHk=",
        "-----BEGIN RSA PRIVATE KEY-----\nc29tZWJvZHktZWxzZXM=\n-----END RSA PRIVATE KEY-----",
        "a harmless line about topic orders, password policy and tokens",
    ]
)
UNKNOWN_SECRETS = (
    "somebody-elses-token",
    "somebody-elses-password",
    "somebody-elses-jaas",
    "somebody-elses-json",
    "eyJzdWIiOiJhZGEifQ",
    "c29tZWJvZHktZWxzZXM",
)


def forms(secret: str) -> set[str]:
    return {
        secret,
        quote(secret, safe=""),
        json.dumps(secret)[1:-1],
        base64.b64encode(secret.encode()).decode().rstrip("="),
    }


def contents(bundle: Path) -> dict[str, str]:
    with tarfile.open(bundle) as tar:
        found = {member.name: tar.extractfile(member) for member in tar.getmembers()}
        return {name: file.read().decode() for name, file in found.items() if file is not None}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    config, log = tmp_path / "node1.toml", tmp_path / "node1.log"
    config.write_text(CONFIG, encoding="utf-8")
    log.write_text(LOG, encoding="utf-8")
    everything = " ".join(SECRETS.values())
    status = {"node_id": 1, "damaged": [everything], "cluster_secret": SECRETS["cluster"]}
    page = NodePages("127.0.0.1:8080", status, {}, f"chronik_x{{label={json.dumps(everything)}}} 1\n", 0.0, 0.0)
    security = ClientSecurity(
        protocol="SASL_SSL",
        username="ada",
        password=SECRETS["client"],
        key_password=SECRETS["client key"],
        key="-----BEGIN PRIVATE KEY-----\nclient-key-bytes\n-----END PRIVATE KEY-----",
    )
    bundle_contents = BundleContents(
        [note_finding("check", f"it says {everything}", "client-key-bytes")],
        LocalFacts(),
        cluster(note=everything),
        [page],
        [config],
        [log],
        security,
    )
    path = tmp_path / "report.tar.gz"
    path.touch(mode=0o644)  # an older bundle that others can read
    write_bundle(path, bundle_contents, [("CHRONIK_PASSWORD", SECRETS["environment"]), ("PATH", "/bin")])
    return path


@pytest.mark.parametrize("name", SECRETS)
def test_known_secret_is_redacted_in_all_files_and_encodings(name: str, bundle: Path) -> None:
    found = contents(bundle)
    assert len(found) == 9
    for file, text in found.items():
        for form in forms(SECRETS[name]):
            if len(form) >= 6:
                assert form not in text, f"{name} is in {file}"
            else:
                assert form not in text.replace('"', " ").split(), f"{name} is in {file}"


def test_texts_that_look_like_secrets_are_redacted(bundle: Path) -> None:
    text = "".join(contents(bundle).values())
    assert "a harmless line about topic orders, password policy and tokens" in text
    assert [each for each in (*UNKNOWN_SECRETS, "client-key-bytes") if each in text] == []


def test_other_values_are_kept_and_json_stays_valid(bundle: Path) -> None:
    found = contents(bundle)
    config = json.loads(found["chronik-doctor/config/node1.toml.json"])
    assert config["node_id"] == 1
    assert config["broker"]["num.partitions"] == 3
    assert config["cluster_secret"] == config["broker"]["plugin.credential"] == REDACTED
    facts = json.loads(found["chronik-doctor/facts.json"])
    assert [node["id"] for node in facts["cluster"]["nodes"]] == [1, 2, 3]
    assert json.loads(found["chronik-doctor/findings.json"])[0]["check"] == "check"
    assert json.loads(found["chronik-doctor/status/node1.json"])["node_id"] == 1
    assert "chronik_x" in found["chronik-doctor/metrics/node1.txt"]
    assert found["chronik-doctor/versions.txt"].startswith("chronik ")


def test_bundle_file_is_private(bundle: Path) -> None:
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o600


def test_long_log_is_truncated_to_its_last_complete_lines(tmp_path: Path) -> None:
    log = tmp_path / "long.log"
    line = "x" * 99 + "\n"
    log.write_text("the first\n" + line * (LOG_BYTES_MAX // 100 + 10) + "the last\n")
    path = tmp_path / "report.tar.gz"
    write_bundle(path, BundleContents([], LocalFacts(), None, [], [], [log], ClientSecurity()), [])
    text = contents(path)["chronik-doctor/logs/long.log"]
    assert text.endswith("the last\n")
    assert text.startswith(line)
    assert "the first" not in text
    assert len(text) <= LOG_BYTES_MAX


def test_invalid_config_file_is_omitted_from_bundle(tmp_path: Path) -> None:
    config = tmp_path / "broken.toml"
    config.write_text(f'cluster_secret = "{SECRETS["cluster"]}')
    path = tmp_path / "report.tar.gz"
    write_bundle(path, BundleContents([], LocalFacts(), None, [], [config], [], ClientSecurity()), [])
    assert SECRETS["cluster"] not in "".join(contents(path).values())


def test_doctor_writes_bundle_for_stopped_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CHRONIK_PASSWORD", SECRETS["environment"])
    config = tmp_path / "node1.toml"
    config.write_text(CONFIG.replace('"data"', json.dumps(str(tmp_path / "data"))) + '"nobodys.key" = 1\n')
    (tmp_path / "node1.log").write_text(LOG)
    assert main(["doctor", str(config), "--bundle", str(tmp_path / "report.tar.gz"), "--timeout", "1"]) == 2
    captured = capsys.readouterr()
    assert "nobodys.key" in captured.out
    found = contents(tmp_path / "report.tar.gz")
    assert "chronik-doctor/logs/node1.log" in found
    everything_written = "".join(found.values()) + captured.out + captured.err
    known = ("cluster", "http", "keystore", "jaas", "inline key", "environment", "unknown", "delegation")
    assert [name for name in known if SECRETS[name] in everything_written] == []


# Redaction


def test_short_secret_is_redacted_only_as_whole_word() -> None:
    mask = Redactor(["p1", "", "  "])
    assert mask.redact("p1 and (p1), but not p12 or mp1") == f"{REDACTED} and ({REDACTED}), but not p12 or mp1"


def test_redactor_without_secrets_keeps_text() -> None:
    assert Redactor([]).redact("topics: 3, partitions: 6") == "topics: 3, partitions: 6"


def test_secrets_are_found_in_nested_values() -> None:
    raw = {
        "a": {"password": "one"},
        "peers": [{"id": 1, "secret": "two"}],
        "broker": {"num.partitions": "3", "x.y": "z"},
    }
    assert sorted(find_secrets(raw)) == ["one", "two", "z"]
    assert redact_config(raw) == {
        "a": {"password": REDACTED},
        "peers": [{"id": 1, "secret": REDACTED}],
        "broker": {"num.partitions": "3", "x.y": REDACTED},
    }


@pytest.mark.parametrize(
    "name", ["cluster_secret", "sasl.jaas.config", "ssl.keystore.key", "MY_PASSWORD", "x.credential"]
)
def test_secret_names_are_recognized(name: str) -> None:
    assert is_secret_name(name)
    assert not is_secret_name("num.partitions")


def test_quotes_around_redacted_value_are_kept() -> None:
    assert redact_secret_patterns('{"token": "abc", "n": 1}') == f'{{"token": "{REDACTED}", "n": 1}}'
