"""The commands and programs in docs/guides/tables-on-s3.md are executed, and their output is compared with the page."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronik.testing.plugin import BrokerFactory
from tests.docs.blocks import CodeBlock, ends_with_output, parse_blocks
from tests.pipeline.object_store.shared_spark import keep_session, run_in_process
from tests.pipeline.seaweedfs import S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "tables-on-s3.md"


def run_shell_block(block: CodeBlock, text: str, patch: pytest.MonkeyPatch) -> str:
    """Run the commands of a block, and return their output.

    Pipeline commands run in this process, and share its Spark session.
    """
    output = []
    for line in text.splitlines():
        words = shlex.split(line)
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            patch.setenv(name, value)
        elif words[:2] == ["chronik", "pipeline"]:
            done = run_in_process(*words[1:], *(["--no-server"] if words[2] == "sql" else []))
            assert done.code == 0, f"{block}: {line}: {done.err}"
            output.append(done.out)
        else:
            ran = subprocess.run(["bash", "-ec", line], capture_output=True, text=True, timeout=60)
            assert ran.returncode == 0, f"{block}: {line}: {ran.stderr}"
            output.append(ran.stdout)
    return "".join(output)


def test_documented_commands_and_programs_run_on_s3(
    spark: SparkSession,
    chronik_broker_factory: BrokerFactory,
    s3_server: S3Server,
    s3_root: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broker = chronik_broker_factory()
    command = tmp_path / "bin" / "chronik"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m chronik "$@"\n')
    command.chmod(0o755)
    replaced = {
        "http://127.0.0.1:8333": s3_server.endpoint,
        "127.0.0.1:9092": broker.bootstrap,
        "s3://lake/tables": s3_root,
    }
    with pytest.MonkeyPatch.context() as patch, keep_session(spark, patch):
        patch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("CHRONIK_BOOTSTRAP_SERVER", broker.bootstrap)
        blocks = [
            each
            for each in parse_blocks(PAGE)
            if each.language in ("sh", "python") and "not run" not in dict(each.marks)
        ]
        assert len(blocks) == 5
        for block in blocks:
            text, expected = block.text, block.expected_output
            for documented, actual in replaced.items():
                text = text.replace(documented, actual)
                expected = None if expected is None else expected.replace(documented, actual)
            if block.language == "python":
                exec(compile(text, str(PAGE), "exec"), {})
                assert "ada" in capsys.readouterr().out
                continue
            output = run_shell_block(block, text, patch)
            if expected is not None:
                assert ends_with_output(expected, output), f"{block}:\n{output}"
