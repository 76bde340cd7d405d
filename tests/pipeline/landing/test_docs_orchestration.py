"""The recipes for Airflow and dbt in docs/guides/orchestration.md.

`make recipes` installs both and runs the whole page. Otherwise, the commands of the DAG run without Airflow, and the
statements of the models run on Spark.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from chronik.pipeline.query.views import views
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory
from tests.cli.command_line import environment
from tests.docs.blocks import FILE, ROOT, CodeBlock, ends_with_output, parse_blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs" / "guides" / "orchestration.md"
DAG_FILE = "dags/chronik_orders.py"
AIRFLOW, DBT = (ROOT / ".tools" / name / "bin" / name for name in ("airflow", "dbt"))
SECONDS_MAX = 600.0
"""Generous, for a machine with other load."""
SEPARATOR = "\x1e"

BLOCKS = parse_blocks(PAGE)
FILES = {name: block.text for block in BLOCKS if (name := block.mark(FILE))}
COMMANDS = [block for block in BLOCKS if block.language == "sh"]
LAND, BUILD, SHOW, RUN_DAG = COMMANDS

Row = tuple[str, int, int]


def find_commands_of_tasks() -> dict[str, str]:
    """Return the command of each task in the DAG."""
    calls = [node for node in ast.walk(ast.parse(FILES[DAG_FILE])) if isinstance(node, ast.Call)]
    return {
        given["task_id"]: given["bash_command"]
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "BashOperator"
        for given in [{word.arg: ast.literal_eval(word.value) for word in call.keywords}]
    }


def read_customers(block: CodeBlock) -> list[Row]:
    """Return the rows of the model `customers` that the page shows."""
    lines = (block.expected_output or "").splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [(customer, int(orders), int(euros)) for customer, orders, euros in cells]


class Reader:
    """A reader of the page: a directory with its files, and a broker."""

    def __init__(self, directory: Path, broker: Broker) -> None:
        self.broker = broker
        self.directory = directory / "reader"
        self.table_root = self.directory / "tables"
        for name, text in FILES.items():
            file = self.directory / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        tools = directory / "bin"
        tools.mkdir()
        (tools / "chronik").write_text(f'#!/bin/sh\nexec {sys.executable} -m chronik "$@"\n', encoding="utf-8")
        (tools / "chronik").chmod(0o755)
        for program in (AIRFLOW, DBT):
            (tools / program.name).symlink_to(program)
        self._environment = environment(broker.bootstrap) | {
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "TABLE_ROOT": str(self.table_root),
            "AIRFLOW_HOME": str(directory / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.directory / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "False",
            "DBT_USE_COLORS": "False",
        }

    def run(self, script: str) -> str:
        """Run a script, and return its standard output."""
        done = subprocess.run(
            ["bash", "-ec", script],
            cwd=self.directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        return done.stdout

    def read_ids(self) -> list[int]:
        return sorted(DeltaTable(str(self.table_root / "orders")).to_pyarrow_table(columns=["id"])["id"].to_pylist())


def produce_another_order(reader: Reader) -> None:
    command = RUN_DAG.text.splitlines()[0]
    assert "chronik produce" in command
    reader.run(command)


def test_dag_commands_land_each_order_once_when_repeated(chronik_broker_factory: BrokerFactory, tmp_path: Path) -> None:
    reader = Reader(tmp_path, chronik_broker_factory())
    assert ends_with_output(LAND.expected_output or "", reader.run(LAND.text))
    tasks = find_commands_of_tasks()
    assert list(tasks) == ["land", "build", "compact"]
    produce_another_order(reader)
    for task in ("land", "compact", "land"):
        reader.run(f"cd {tmp_path}\n{tasks[task]}")  # Airflow runs tasks in other directories
        assert reader.read_ids() == [1, 2, 3, 4]


def render(model: str, relations: dict[str, str], *, is_incremental: bool) -> str:
    """Return the statement of a model, as dbt renders it for the given relations."""
    statement = re.sub(r"\{\{ config\(.*?\) \}\}", "", FILES[f"shop/models/{model}.sql"])
    added = r"\1" if is_incremental else ""
    statement = re.sub(r"\{% if is_incremental\(\) %\}(.*?)\{% endif %\}", added, statement, flags=re.DOTALL)
    for template, relation in relations.items():
        statement = statement.replace(f"{{{{ {template} }}}}", relation)
    assert "{" not in statement
    return statement


def test_models_return_the_documented_rows(
    spark: SparkSession, chronik_broker_factory: BrokerFactory, tmp_path: Path
) -> None:
    reader = Reader(tmp_path, chronik_broker_factory())
    reader.run(LAND.text)
    relations = {
        'source("chronik", "orders")': "orders_cold",
        "this": "stg_orders",
        'ref("stg_orders")': "stg_orders",
    }

    def read_landed_orders(*, is_incremental: bool) -> list[tuple[object, ...]]:
        views(spark, reader.broker.bootstrap, str(reader.table_root), ["orders"])
        rows = spark.sql(render("stg_orders", relations, is_incremental=is_incremental))
        found = [tuple(row) for row in rows.collect()]
        known = [] if not is_incremental else [tuple(row) for row in spark.table("stg_orders").collect()]
        spark.createDataFrame([*known, *found], rows.schema).createOrReplaceTempView("stg_orders")
        return found

    def read_model() -> list[Row]:
        statement = render("customers", relations, is_incremental=False)
        return sorted((row[0], row[1], row[2]) for row in spark.sql(statement).collect())

    assert len(read_landed_orders(is_incremental=False)) == 3
    assert read_model() == read_customers(SHOW)
    produce_another_order(reader)
    reader.run(find_commands_of_tasks()["land"])
    assert len(read_landed_orders(is_incremental=True)) == 1
    assert read_landed_orders(is_incremental=True) == []
    assert read_model() == read_customers(RUN_DAG)


def test_page_runs_with_airflow_and_dbt(chronik_broker_factory: BrokerFactory, tmp_path: Path) -> None:
    if missing := [program.name for program in (AIRFLOW, DBT) if not program.exists()]:
        pytest.skip(f"{' and '.join(missing)} are not installed: run make recipes")
    reader = Reader(tmp_path, chronik_broker_factory())
    reader.run("airflow db migrate")
    script = "".join(f"{block.text}\nprintf '{SEPARATOR}'\n" for block in COMMANDS)
    outputs = reader.run(script).split(SEPARATOR)[:-1]
    for block, output in zip(COMMANDS, outputs, strict=True):
        assert ends_with_output(block.expected_output or "", output.rstrip()), f"{block} printed:\n{output}"
    assert reader.read_ids() == [1, 2, 3, 4]


def test_make_recipes_installs_the_documented_packages() -> None:
    rows = re.findall(r"^\| (?:Airflow|dbt) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    packages = [package for row in rows for package in re.findall(r"`(.*?)`", row)]
    assert len(packages) == 5
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert [package for package in packages if package not in makefile] == []
