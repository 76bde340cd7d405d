"""Layering: a module imports only from its own package and from lower layers, and packages have no import cycles."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "chronik"

LAYERS = (
    {"__main__"},
    {"cli"},
    {"bench", "migration", "pipeline", "testing"},
    {"node"},
    {"console"},
    {"server"},
    {"api", "replication"},
    {"admin", "transactions"},
    {"groups", "controller", "broker", "client"},
    {"coordination", "registry"},
    {"configs"},
    {"security"},
    {"metadata"},
    {"quorum"},
    {"health", "history", "raft", "peers", "planning"},
    {"log", "wal"},
    {"formats", "protocol"},
    {"files", "tls"},
    {"command_parser", "config", "limits", "linear_regex", "log_output", "request_reply"},
    {"listeners", "scheduler"},
    {
        "clock",
        "crc",
        "durations",
        "errors",
        "escaping",
        "histogram",
        "ids",
        "ip_addresses",
        "notifier",
        "pipeline_journal",
        "principals",
        "varint",
        "wording",
    },
)
LAYER = {package: -number for number, packages in enumerate(LAYERS) for package in packages}
FORBIDDEN = {
    "server": {"protocol", "api", "broker", "metadata", "log"},  # the dispatch function is passed in
}


@cache
def modules() -> dict[str, Path]:
    """Return the modules by name; a package's `__init__` has the name of the package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield statements recursively; expressions, which are most of a module, contain none."""
    for node in body:
        yield node
        for name in ("body", "orelse", "handlers", "finalbody", "cases"):
            yield from statements(getattr(node, name, ()))


@cache
def imported(name: str) -> list[tuple[int, str]]:
    """Return the modules of Chronik that a module imports, with line numbers, including imports for type checking."""
    path = modules()[name]
    found = []
    for node in statements(ast.parse(path.read_text(encoding="utf-8")).body):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for each in names:
            module = each if each in modules() else each.rpartition(".")[0]
            if module in modules():
                found.append((node.lineno, module))
    return found


def test_every_package_has_a_layer() -> None:
    packages = {name.split(".")[1] for name in modules() if name != "chronik"}
    assert len(packages) > 5
    assert packages <= set(LAYER)


def test_modules_import_only_from_lower_layers() -> None:
    wrong = []
    for name, path in modules().items():
        for line, other in imported(name):
            if "chronik" in (name, other):
                continue  # the package itself has only the version
            package, other_package = name.split(".")[1], other.split(".")[1]
            is_higher = LAYER[other_package] >= LAYER[package] and other_package != package
            if is_higher or other_package in FORBIDDEN.get(package, ()):
                wrong.append(f"{path.relative_to(PACKAGE.parent)}:{line}: {package} must not import {other_package}")
    assert not wrong, "\n".join(wrong)


def common_package(name: str, other: str) -> tuple[str, str, str]:
    """Return the innermost package that contains both modules, and the child of it that each belongs to.

    A package's `__init__` counts as a sibling of its modules.
    """
    own, others = name.split("."), other.split(".")
    depth = 0
    while depth < min(len(own), len(others)) and own[depth] == others[depth]:
        depth += 1
    return ".".join(own[:depth]), ".".join(own[: depth + 1]), ".".join(others[: depth + 1])


def test_packages_have_no_import_cycles() -> None:
    packages: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name in modules():
        for _, other in imported(name):
            package, own, others = common_package(name, other)
            packages[package][own].add(others)
    assert {"chronik", "chronik.raft", "chronik.quorum", "chronik.peers"} <= set(packages)
    cycles = []
    for graph in packages.values():
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            cycles.append(" imports ".join(reversed(error.args[1])))
    assert not cycles, "\n".join(cycles)


def test_common_package_compares_siblings() -> None:
    assert common_package("chronik.raft.core", "chronik.raft.rules")[0] == "chronik.raft"
    assert common_package("chronik.a.b.c", "chronik.a.d.e") == ("chronik.a", "chronik.a.b", "chronik.a.d")
    assert common_package("chronik.a.b.c", "chronik.a") == ("chronik.a", "chronik.a.b", "chronik.a")
    assert common_package("chronik.a", "chronik.a.b.c") == ("chronik.a", "chronik.a", "chronik.a.b")
