"""`chronik users`, and the first user, whom a start makes: passwords come from a file, the environment or a prompt."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from chronik.cli.passwords import PASSWORD_VARIABLE, password_from
from chronik.errors import ConfigError
from chronik.protocol.errors import ErrorCode
from chronik.testing.ports import ReservedPorts
from tests.raw import RawClient
from tests.security.sasl.asking import AskingBroker, authenticate

PASSWORD = "only in a file"


@pytest.fixture(scope="module")
def broker() -> Iterator[AskingBroker]:
    with AskingBroker() as running:
        assert isinstance(running, AskingBroker)
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


def lets_in(bootstrap: str, mechanism: str, user: str, password: str) -> bool:
    with RawClient(bootstrap) as client:
        return authenticate(client, mechanism, user, password).error_code == ErrorCode.NONE


@pytest.mark.slow
def test_users_are_added_altered_and_deleted(broker: AskingBroker, password_file: Path) -> None:
    there = ("-b", broker.open_bootstrap)
    added = chronik("users", "add", "alice", "--password-file", password_file, *there)
    assert (added.returncode, added.stdout) == (0, "added user alice\n"), added.stderr
    assert lets_in(broker.bootstrap, "PLAIN", "alice", PASSWORD)
    again = chronik("users", "add", "alice", "--password-file", password_file, *there)
    assert again.returncode == 1
    assert again.stderr == "chronik: there is a user 'alice' already; chronik users alter gives another password\n"
    sha_512 = ("--mechanism", "SCRAM-SHA-512", "--iterations", 8192)
    assert chronik("users", "alter", "alice", *sha_512, *there, CHRONIK_PASSWORD="second").returncode == 0
    assert lets_in(broker.bootstrap, "SCRAM-SHA-512", "alice", "second")
    assert lets_in(broker.bootstrap, "SCRAM-SHA-256", "alice", PASSWORD)
    listed = json.loads(chronik("users", "list", "--json", *there).stdout)
    assert listed == [{"name": "alice", "mechanisms": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 8192}}]
    assert "alice" in chronik("users", "list", *there).stdout
    assert chronik("users", "delete", "alice", *there).stdout == "deleted user alice\n"
    assert not lets_in(broker.bootstrap, "SCRAM-SHA-256", "alice", PASSWORD)
    gone = chronik("users", "delete", "alice", *there)
    assert "there is no user 'alice'" in gone.stderr
    missing = chronik("users", "alter", "alice", *there)
    assert "there is no user 'alice'; chronik users add makes one" in missing.stderr
    without = chronik("users", "add", "bob", *there)
    assert without.stderr == f"chronik: no password for 'bob': give --password-file FILE, or {PASSWORD_VARIABLE}\n"
    few = chronik("users", "add", "bob", "--iterations", 4095, *there)
    assert "expected a whole number from 4096 to 16384" in few.stderr


@pytest.mark.slow
def test_the_first_user_is_made_by_the_start_that_founds_the_store(tmp_path: Path, password_file: Path) -> None:
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
        for told in ("added the first user, 'admin'", "user 'admin' is there already, and keeps the password it has"):
            with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as node:
                assert node.stderr is not None
                lines = []
                try:
                    for line in node.stderr:
                        lines.append(line)
                        if "answers Kafka clients" in line:
                            break
                    assert lets_in(f"127.0.0.1:{port}", "SCRAM-SHA-256", "admin", PASSWORD)
                finally:
                    node.terminate()
                    lines += node.stderr.readlines()
            assert told in "".join(lines)
            assert PASSWORD not in "".join(lines)
    finally:
        reserved.release()


def test_a_password_is_the_first_line_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"one two\r\nthree\n")
    assert password_from(file, "alice") == "one two"
    file.write_text("\n")
    with pytest.raises(ConfigError, match="in its first line"):
        password_from(file, "alice")


def test_a_prompt_asks_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PASSWORD_VARIABLE, raising=False)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    typed = iter(["a", "a", "a", "b", ""])
    monkeypatch.setattr("getpass.getpass", lambda _: next(typed))
    assert password_from(None, "alice") == "a"
    with pytest.raises(ConfigError, match="differ"):
        password_from(None, "alice")
    with pytest.raises(ConfigError, match="empty"):
        password_from(None, "alice")
    monkeypatch.setenv(PASSWORD_VARIABLE, "")
    with pytest.raises(ConfigError, match="is empty"):
        password_from(None, "alice")
