"""The file and the commands in docs/operate/apply.md are executed, and their output is compared with the page."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from chronik.cli.main import main
from chronik.testing.secured import SecuredBroker

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "operate" / "apply.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_commands_of_apply_page_print_documented_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (file,) = blocks("toml")
    mistake, plan, nothing = blocks("text")
    (commands,) = blocks("sh")
    with SecuredBroker() as broker:
        assert isinstance(broker, SecuredBroker)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("CHRONIK_BOOTSTRAP_SERVER", broker.bootstrap)
        monkeypatch.setenv("BILLING_PASSWORD", "of billing")
        Path("alice.password").write_text("of alice\n")
        Path("admin.properties").write_text("".join(f"{key}={value}\n" for key, value in broker.settings().items()))
        Path("cluster.toml").write_text(file.replace("partitions = 6", "partitions = 0"))

        def run(command: str) -> tuple[int, str]:
            words, _, target = command.partition(" > ")
            code = main(shlex.split(words)[1:])
            out, err = capsys.readouterr()
            if target:
                Path(target).write_text(out)
            return code, out + err

        first, second, third, export, fifth = commands.splitlines()
        assert run(first) == (1, mistake)
        Path("cluster.toml").write_text(file)
        assert run(first) == (2, plan)
        assert run(second) == (0, f"{plan}7 steps applied\n")
        assert run(third) == (0, nothing)
        assert run(export)[0] == 0
        assert run(fifth) == (0, nothing)
