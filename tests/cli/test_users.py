"""`chronik users`, and the first user that `chronik start --add-scram` creates."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from chronik.cli.passwords import PASSWORD_VARIABLE, read_password
from chronik.errors import ConfigError
from chronik.protocol.errors import ErrorCode
from chronik.testing.ports import ReservedPorts
from tests.raw import RawClient
from tests.security.sasl.sasl_broker import SaslBroker, authenticate

PASSWORD = "only in a file"


@pytest.fixture(scope="module")
def broker() -> Iterator[SaslBroker]:
    with SaslBroker() as running:
        assert isinstance(running, SaslBroker)
        yield running


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    return file


def chronik(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "chronik", *map(str, words)]
    return subprocess.run(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def can_authenticate(bootstrap: str, mechanism: str, user: str, password: str) -> bool:
    with RawClient(bootstrap) as client:
        return authenticate(client, mechanism, user, password).error_code == ErrorCode.NONE


@pytest.mark.slow
def test_users_are_added_altered_and_deleted(broker: SaslBroker, password_file: Path) -> None:
    connection = ("-b", broker.open_bootstrap)
    added = chronik("users", "add", "alice", "--password-file", password_file, *connection)
    assert (added.returncode, added.stdout) == (0, "added user alice\n"), added.stderr
    assert can_authenticate(broker.bootstrap, "PLAIN", "alice", PASSWORD)
    again = chronik("users", "add", "alice", "--password-file", password_file, *connection)
    assert again.returncode == 1
    assert again.stderr == "chronik: user 'alice' already exists; use chronik users alter to change its password\n"
    sha_512 = ("--mechanism", "SCRAM-SHA-512", "--iterations", 8192)
    assert chronik("users", "alter", "alice", *sha_512, *connection, CHRONIK_PASSWORD="second").returncode == 0
    assert can_authenticate(broker.bootstrap, "SCRAM-SHA-512", "alice", "second")
    assert can_authenticate(broker.bootstrap, "SCRAM-SHA-256", "alice", PASSWORD)
    listed = json.loads(chronik("users", "list", "--json", *connection).stdout)
    assert listed == [{"name": "alice", "mechanisms": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 8192}}]
    assert "alice" in chronik("users", "list", *connection).stdout
    assert chronik("users", "delete", "alice", *connection).stdout == "deleted user alice\n"
    assert not can_authenticate(broker.bootstrap, "SCRAM-SHA-256", "alice", PASSWORD)
    deleted_again = chronik("users", "delete", "alice", *connection)
    assert "user 'alice' does not exist" in deleted_again.stderr
    missing = chronik("users", "alter", "alice", *connection)
    assert "user 'alice' does not exist; use chronik users add to create it" in missing.stderr
    without = chronik("users", "add", "bob", *connection)
    assert without.stderr == (
        f"chronik: no password for user 'bob': use --password-file FILE or set {PASSWORD_VARIABLE}\n"
    )
    few = chronik("users", "add", "bob", "--iterations", 4095, *connection)
    assert "expected an integer from 4096 to 16384" in few.stderr


@pytest.mark.slow
def test_add_scram_creates_first_user_only_once(tmp_path: Path, password_file: Path) -> None:
    reserved = ReservedPorts(1)
    (port,) = reserved.ports
    config = tmp_path / "node.toml"
    config.write_text(
        f'data_dir = "{tmp_path / "data"}"\n[broker]\nlisteners = "SASL_PLAINTEXT://127.0.0.1:{port}"\n'
        '"sasl.enabled.mechanisms" = "SCRAM-SHA-256"\n'
    )
    command = [sys.executable, "-P", "-m", "chronik", "start", "--config", str(config), "--add-scram", "admin"]
    command += ["--password-file", str(password_file)]
    try:
        for expected in (
            "first user 'admin' added",
            "first user 'admin' exists already; keeping its password",
        ):
            with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as node:
                assert node.stderr is not None
                lines = []
                try:
                    for line in node.stderr:
                        lines.append(line)
                        if "answers Kafka clients" in line:
                            break
                    assert can_authenticate(f"127.0.0.1:{port}", "SCRAM-SHA-256", "admin", PASSWORD)
                finally:
                    node.terminate()
                    lines += node.stderr.readlines()
            assert expected in "".join(lines)
            assert PASSWORD not in "".join(lines)
    finally:
        reserved.release()


def test_password_is_first_line_of_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"one two\r\nthree\n")
    assert read_password(file, "alice") == "one two"
    file.write_text("\n")
    with pytest.raises(ConfigError, match="expected the password on its first line"):
        read_password(file, "alice")


def test_password_prompt_requires_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PASSWORD_VARIABLE, raising=False)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    typed = iter(["a", "a", "a", "b", ""])
    monkeypatch.setattr("getpass.getpass", lambda _: next(typed))
    assert read_password(None, "alice") == "a"
    with pytest.raises(ConfigError, match="do not match"):
        read_password(None, "alice")
    with pytest.raises(ConfigError, match="must not be empty"):
        read_password(None, "alice")
    monkeypatch.setenv(PASSWORD_VARIABLE, "")
    with pytest.raises(ConfigError, match="is empty"):
        read_password(None, "alice")
