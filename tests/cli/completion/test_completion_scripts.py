"""Completion scripts in a real bash, and in zsh and fish if they are installed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
from functools import cache
from pathlib import Path

import pytest

from chronik.cli.completion.command import get_completion_script
from chronik.cli.completion.command_tree import ValueKind, list_command_nodes
from chronik.cli.main import COMMANDS
from chronik.testing import Broker
from tests.cli.command_line import COMMAND, TIMEOUT_S, run_chronik

BREAKS = re.compile(r"([:=])")
"""Characters at which bash splits words, in addition to spaces."""

FAKE = """\
#!/bin/sh
printf '%s\\n' "$@" > "$ASKED"
printf '%s\\n' orders orders.paid payments '$(touch "$PWNED")' '`touch "$PWNED"`'
"""


@cache
def bash_script() -> str:
    return get_completion_script("bash")


def split_like_bash(line: str) -> list[str]:
    words = [piece for word in line.split() for piece in BREAKS.split(word) if piece]
    return [*words, ""] if line.endswith(" ") else words


def complete(line: str, folder: Path) -> list[str]:
    """Return the completions that bash gets for a line with the cursor at its end, with a fake `chronik` command."""
    fake = folder / "bin" / "chronik"
    fake.parent.mkdir(exist_ok=True)
    fake.write_text(FAKE)
    fake.chmod(0o755)
    words = split_like_bash(line)
    script_lines = [
        bash_script(),
        f"COMP_LINE={shlex.quote(line)} COMP_POINT={len(line)} COMP_CWORD={len(words) - 1}",
        f"COMP_WORDS=({' '.join(map(shlex.quote, words))})",
        "_chronik chronik",
        "printf '%s\\n' ${COMPREPLY[@]+\"${COMPREPLY[@]}\"}",
    ]
    paths = {"PATH": f"{fake.parent}:{os.environ['PATH']}", "HOME": "/home/ada"}
    notes = {"ASKED": str(folder / "asked"), "PWNED": str(folder / "pwned")}
    done = subprocess.run(
        ["bash", "--norc", "--noprofile"], input="\n".join(script_lines), text=True, capture_output=True,
        timeout=TIMEOUT_S, cwd=folder, env=paths | notes,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1] if done.stdout.strip() else []


def requested_arguments(folder: Path) -> list[str]:
    return (folder / "asked").read_text().splitlines()


def test_scripts_contain_every_command_and_option() -> None:
    known = list_command_nodes()
    assert [name for name, _ in known[0].subcommands] == list(COMMANDS)
    assert ("pipeline", "server", "start") in [place.words for place in known], "nested subcommands"
    assert ("bench", "round-trip") in [place.words for place in known]
    bash, fish = bash_script(), get_completion_script("fish")
    for place in known:
        words = " ".join(place.words)
        flags = re.search(rf"^    {re.escape(shlex.quote(words))}\) follow=.* flags='?([^']*)'? wanting=", bash, re.M)
        assert flags is not None, words
        for option in place.options:
            for name in option.names:
                assert name in flags[1].split()
                assert re.search(
                    rf"'__chronik_at ?{words}'.* -{'l' if name[1] == '-' else 's'} {name.lstrip('-')}\b", fish
                )


def test_value_kind_is_derived_from_metavar() -> None:
    kinds = {
        (" ".join(place.words), option.names[-1]): option.value.kind
        for place in list_command_nodes()
        for option in place.options
        if option.value is not None
    }
    assert kinds["produce", "--file"] is ValueKind.FILE
    assert kinds["start", "--data"] is ValueKind.DIRECTORY
    assert kinds["topics elect-leaders", "--topic"] is ValueKind.TOPIC
    assert kinds["groups reset-offsets", "--topic"] is ValueKind.TOPIC
    assert kinds["produce", "--timeout"] is ValueKind.ANY
    (value,) = next(place for place in list_command_nodes() if place.words == ("topics", "describe")).values
    assert (value.kind, value.repeats) == (ValueKind.TOPIC, True)


def test_script_does_not_depend_on_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    before = get_completion_script("fish"), get_completion_script("bash")
    monkeypatch.setenv("CHRONIK_BOOTSTRAP_SERVER", "broker.example.org:9092")
    assert (get_completion_script("fish"), get_completion_script("bash")) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("chronik co", ["consume", "completion"]),
        ("chronik -", ["-h", "--help", "-V", "--version"]),
        ("chronik nonsense ", []),
        ("chronik ", list(COMMANDS)),
        ("chronik topics de", ["describe", "delete"]),
        ("chronik pipeline server st", ["start", "stop", "status"]),
        ("chronik bench round-trip --js", ["--json"]),
        ("chronik produce orders --form", ["--format"]),
        ("chronik produce orders --format ", ["lines", "json", "csv"]),
        ("chronik produce orders -k : --format c", ["csv"]),
        ("chronik produce orders --format=", ["lines", "json", "csv"]),
        ("chronik produce orders --format=j", ["json"]),
        ("chronik consume orders --format k", ["key=value"]),
        ("chronik consume orders --format key=", ["value"]),
        ("chronik consume orders --format=key=v", ["value"]),
        ("chronik consume orders --key-separator = --format v", ["value"]),
        ("chronik produce orders -z g", ["gzip"]),
        ("chronik completion ", ["bash", "zsh", "fish", "topics"]),
        ("chronik topics create ", ["-h", "--help"]),
        ("chronik produce --timeout ", []),
        ("chronik produce --file ", ["bin", "some file"]),
        ("chronik produce --file=s", ["some file"]),
        ("chronik start --data ", ["bin"]),
        ("chronik consume ", ["orders", "orders.paid", "payments"]),
        ("chronik consume ord", ["orders", "orders.paid"]),
        ("chronik topics describe payments ord", ["orders", "orders.paid"]),
        ("chronik consume orders ord", []),
        ("chronik topics elect-leaders --topic=pay", ["payments"]),
    ],
)
def test_bash_completes_commands_options_values_and_topics(line: str, expected: list[str], tmp_path: Path) -> None:
    (tmp_path / "some file").touch()
    found = complete(line, tmp_path)
    if expected == ["-h", "--help"]:
        assert found[:2] == expected, "options are offered if any value is allowed"
    else:
        assert sorted(word for word in found if "touch" not in word) == sorted(expected)
    assert not (tmp_path / "pwned").exists(), "broker responses are not evaluated"


@pytest.mark.slow
def test_topic_completion_uses_connection_options_of_line(tmp_path: Path) -> None:
    complete("chronik consume -b 10.0.0.1:9092,[::1]:9093 ord", tmp_path)
    assert requested_arguments(tmp_path) == ["completion", "topics", "-b", "10.0.0.1:9092,[::1]:9093"]
    complete("chronik topics describe --bootstrap-server=a:1 --client-config ~/ada.properties ", tmp_path)
    script_lines = ["--bootstrap-server", "a:1", "--client-config", "/home/ada/ada.properties"]
    assert requested_arguments(tmp_path) == ["completion", "topics", *script_lines]
    complete("chronik consume --client-config 'ada.properties' ", tmp_path)
    assert requested_arguments(tmp_path) == ["completion", "topics", "--client-config", "ada.properties"]
    (tmp_path / "asked").unlink()
    complete("chronik consume orders --fo", tmp_path)
    assert not (tmp_path / "asked").exists(), "options are completed without a request"


@pytest.mark.slow
def test_interactive_bash_completes_on_tab(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(bash_script())
    ours, terminal = os.openpty()
    environ = {"PATH": os.environ["PATH"], "TERM": "dumb", "PS1": "> ", "HOME": str(tmp_path)}
    process = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"], stdin=terminal, stdout=terminal, stderr=terminal, cwd=tmp_path,
        env=environ, start_new_session=True,
    )  # fmt: skip
    os.close(terminal)
    os.set_blocking(ours, False)
    seen, deadline = "", time.monotonic() + TIMEOUT_S

    def type_until(keys: str, expected: str) -> None:
        nonlocal seen
        os.write(ours, keys.encode())
        while expected not in seen and time.monotonic() < deadline:
            time.sleep(0.01)
            try:
                seen += os.read(ours, 65536).decode()
            except BlockingIOError:
                continue
        assert expected in seen, seen
        seen = ""

    try:
        type_until("source ./script; complete -p chronik\n", "complete -F _chronik chronik")
        type_until("chronik prod\t", "produce ")
        type_until("orders --format=c\t", "--format=csv")
        type_until("-b 127.0.0.1:9092 --ac\t", "--acks ")
        type_until("\x01echo \n", "chronik produce orders --format=csv -b 127.0.0.1:9092 --acks")
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.mark.slow
def test_completion_topics_prints_names_or_nothing(chronik_broker: Broker, chronik_topic: str) -> None:
    names = run_chronik("completion", "topics", "-b", chronik_broker.bootstrap).lines
    assert chronik_topic in names
    assert not [name for name in names if name.startswith("__")], "internal topics are not completed"
    for words in (("-b", "127.0.0.1:1"), ("-b", "nonsense"), ("--client-config", "nowhere")):
        silent = run_chronik("completion", "topics", *words)
        assert (silent.code, silent.out, silent.err) == (1, "", "")
    assert "Traceback" in run_chronik("completion", "topics", "-b", "127.0.0.1:1", "--debug").err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "check"),
    [
        ("zsh", "source ./script && print ${_comps[chronik]}"),
        ("fish", "source ./script; complete --do-complete 'chronik topics de'"),
    ],
)
def test_zsh_and_fish_load_their_scripts(shell: str, check: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    printed = subprocess.run([*COMMAND, "completion", shell], capture_output=True, timeout=TIMEOUT_S, check=True)
    (tmp_path / "script").write_bytes(printed.stdout)
    options = ["-f"] if shell == "zsh" else ["--no-config"]
    done = subprocess.run(
        [shell, *options, "-c", check], capture_output=True, text=True, timeout=TIMEOUT_S, cwd=tmp_path,
        env=os.environ | {"HOME": str(tmp_path)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    expected = {"zsh": "_bash_complete -F _chronik", "fish": "describe"}
    assert expected[shell] in done.stdout
