"""Every command and function for tables accepts storage options, and passes them on."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from chronik.cli.pipeline.command import add_arguments

SOURCE = Path(__file__).parents[3] / "src" / "chronik"

FUNCTIONS_WITH_OPTIONS = frozenset(
    {
        "DeltaTopicTable", "SnapshotReader", "TableCatalog", "TableStorage", "open_audited_table", "open_delta",
        "open_or_create_table", "open_table", "list_table_names", "list_topics_with_dead_letters",
        "read_sample_rows_as_json",
    }
)  # fmt: skip
"""Functions that take a location, and its storage options as an optional argument."""


@cache
def pipeline_modules() -> dict[Path, ast.Module]:
    paths = [*(SOURCE / "pipeline").rglob("*.py"), *(SOURCE / "cli" / "pipeline").rglob("*.py")]
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def functions_with_table_root() -> dict[str, ast.FunctionDef]:
    """Return the functions and constructors that have a parameter `table_root`."""
    found: dict[str, ast.FunctionDef] = {}
    for tree in pipeline_modules().values():
        for node in ast.walk(tree):
            bodies = [(node.name, node)] if isinstance(node, ast.FunctionDef) else []
            for name, function in bodies:
                if "table_root" in parameter_names(function):
                    found[name] = function
    return found


def parameter_names(function: ast.FunctionDef) -> set[str]:
    return {each.arg for each in (*function.args.args, *function.args.kwonlyargs)}


def calls() -> Iterator[tuple[str, str, ast.Call]]:
    for path, tree in pipeline_modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", node.func.id, node


def passes_options(call: ast.Call) -> bool:
    return any("options" in ast.unparse(each) for each in (*call.args, *call.keywords))


WITHOUT_OPTIONS = {"plan", "wrap_with_input_verification", "_verify_inputs_and_run", "describe_selection"}
"""Functions with a parameter `table_root` that open no table, or have the options as an attribute."""


def test_functions_with_table_root_accept_storage_options() -> None:
    functions = functions_with_table_root()
    assert {"run", "query", "views", "audit", "replay", "compact_tables", "list_dead_letters"} <= functions.keys()
    missing = {name for name, each in functions.items() if "storage_options" not in parameter_names(each)}
    assert missing == WITHOUT_OPTIONS


def test_calls_that_open_or_list_tables_pass_storage_options() -> None:
    functions = FUNCTIONS_WITH_OPTIONS | functions_with_table_root().keys() - WITHOUT_OPTIONS - {"run"}
    found = [(where, name, call) for where, name, call in calls() if name in functions]
    found += [
        (where, name, call)
        for where, name, call in calls()
        if name == "run" and any(each.arg == "partition_by" for each in call.keywords)  # not a command's function
    ]
    assert len(found) > 30
    assert [f"{where} {name}" for where, name, call in found if not passes_options(call)] == []


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from parsers(each)


def test_commands_with_table_root_accept_storage_options() -> None:
    parser = argparse.ArgumentParser(prog="pipeline")
    add_arguments(parser)
    options = {each.prog: set(each._option_string_actions) for each in parsers(parser)}
    with_root = {prog for prog, names in options.items() if "--table-root" in names}
    assert {prog.removeprefix("pipeline ") for prog in with_root} == {
        "run", "doctor", "sql", "audit", "compact", "replay", "dlq list", "dlq retry", "rebuild",
        "tables", "repair",
        "schema show", "schema diff", "schema set",
    }  # fmt: skip
    assert {prog for prog in with_root if "--storage-option" not in options[prog]} == set()


def test_malformed_storage_option_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    from chronik.cli.main import main

    words = ["pipeline", "dlq", "list", "--table-root", "s3://lake/tables", "--storage-option", "aws_region"]
    assert main(words) != 0
    assert capsys.readouterr().err == "chronik: --storage-option aws_region…: expected NAME=VALUE\n"


def test_malformed_storage_option_is_rejected_without_showing_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    from chronik.cli.main import main

    words = ["pipeline", "dlq", "list", "--table-root", "s3://lake/tables"]
    assert main([*words, "--storage-option", "aws_secret_access_key:hidden"]) != 0
    assert capsys.readouterr().err == "chronik: --storage-option aws_secret_access_key…: expected NAME=VALUE\n"
