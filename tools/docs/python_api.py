"""docs/python-api.md: what programs may call: signatures, and what is said of them. Nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

SOURCES: Final = Path(__file__).parents[2] / "src"
PAGE: Final = Path("docs", "python-api.md")
INTRODUCTION: Final = """\
# Python API

Written by `.venv/bin/python -m tools.docs`, from the sources. What is not here may change without a word in the
changelog. Kafka's own APIs are best used by a client of your choice ([which work](client-compatibility.md)); this page
is about what comes with Chronik: a small blocking client, brokers for tests, and the pipeline.
"""


class Part(NamedTuple):
    title: str
    about: str
    modules: tuple[tuple[str, tuple[str, ...]], ...]
    """Each with the names that are shown; none: all that are public."""


PARTS: Final = (
    Part(
        "chronik.testing",
        "Real brokers for tests: [testing.md](testing.md). All names are also those of `chronik.testing` itself.",
        (
            ("chronik.testing.broker", ("Broker",)),
            ("chronik.testing.secured", ("SecuredBroker",)),
            ("chronik.testing.cluster", ("Cluster", "ClusterNode")),
            ("chronik.testing.control", ("BrokerFailed",)),
            ("chronik.testing.seen", ("SeenRequest",)),
        ),
    ),
    Part(
        "chronik.client",
        "A blocking client for scripts, tests and tools. It works with any Kafka broker.",
        (
            ("chronik.client.cluster", ("Cluster",)),
            ("chronik.client.records", ()),
            ("chronik.client.producer", ("Producer", "Written")),
            ("chronik.client.transactional", ("Transaction",)),
            ("chronik.client.consumer", ()),
            ("chronik.client.admin", ()),
            ("chronik.client.configs", ()),
            ("chronik.client.groups", ()),
            ("chronik.client.offsets", ("earliest_offsets", "latest_offsets", "list_offsets")),
            ("chronik.client.partitions", ()),
            ("chronik.client.transactions", ()),
            ("chronik.client.access.settings", ()),
            ("chronik.client.errors", ()),
        ),
    ),
    Part(
        "chronik.pipeline",
        "Topics as tables, on Spark: [pipeline.md](pipeline.md). It needs `chronik[spark]`.",
        (
            ("chronik.pipeline.spark.runtime", ("session",)),
            ("chronik.pipeline.landing.running", ("run",)),
            ("chronik.pipeline.landing.driver", ("Summary", "LandingFailed")),
            ("chronik.pipeline.query.sql", ("query",)),
            ("chronik.pipeline.query.views", ("views", "Views", "NoSuchTopic")),
            ("chronik.pipeline.audit.run", ("audit",)),
            ("chronik.pipeline.audit.folders", ("CannotLook",)),
            ("chronik.pipeline.audit.report", ("Report",)),
            ("chronik.pipeline.audit.findings", ("Finding", "Kind")),
            ("chronik.pipeline.upkeep.compact", ("compact_tables",)),
            ("chronik.pipeline.upkeep.replay", ("replay",)),
            ("chronik.pipeline.upkeep.dead_letters", ("list_letters", "retry")),
            ("chronik.pipeline.errors", ()),
        ),
    ),
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def page() -> str:
    return INTRODUCTION + "".join(line for part in PARTS for line in _part(part))


def _part(part: Part) -> Iterator[str]:
    yield f"\n## {part.title}\n{part.about}\n"
    for module, wanted in part.modules:
        tree = ast.parse((SOURCES / (module.replace(".", "/") + ".py")).read_text(encoding="utf-8"))
        shown = [node for node in tree.body if _is_shown(node, wanted)]
        assert len(shown) >= len(wanted), f"{module} does not have all of {wanted}"
        yield f"\n### {module}\n{_text(ast.get_docstring(tree))}\n"
        for node in shown:
            yield from _class(node) if isinstance(node, ast.ClassDef) else _function(node)  # type: ignore[arg-type]


def _is_shown(node: ast.stmt, wanted: tuple[str, ...]) -> bool:
    if not isinstance(node, ast.ClassDef | Function):
        return False
    return node.name in wanted if wanted else not node.name.startswith("_")


def _class(node: ast.ClassDef) -> Iterator[str]:
    bases = ", ".join(map(ast.unparse, node.bases))
    init = next((each for each in node.body if isinstance(each, Function) and each.name == "__init__"), None)
    heading = f"class {node.name}({bases})" if init is None and bases else f"class {node.name}{_arguments(init)}"
    yield f"\n#### {node.name}\n```text\n{heading}\n```\n"
    yield "".join(
        f"{text}\n\n" for each in (node, init) if each is not None and (text := _text(ast.get_docstring(each)))
    )
    fields = list(fields_of(node))
    if fields:
        yield "| | |\n|---|---|\n" + "".join(f"| `{name}` | {about} |\n" for name, about in fields) + "\n"
    for each in node.body:
        if isinstance(each, Function) and not each.name.startswith("_"):
            yield _method(each)


def fields_of(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """With their types, and what stands below them."""
    followers = [*node.body[1:], None]
    for each, after in zip(node.body, followers, strict=True):
        about = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
            about = " ".join(after.value.value.split())
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and not each.target.id.startswith("_"):
            default = f" = {ast.unparse(each.value)}" if each.value else ""
            yield (
                f"{each.target.id}: {ast.unparse(each.annotation)}{default}".replace("|", "\\|"),
                about.replace("|", "\\|"),
            )
        elif isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name) and each.targets[0].id[0] != "_":
            yield ast.unparse(each), about


def _method(node: Function) -> str:
    is_property = any(ast.unparse(each).endswith("property") for each in node.decorator_list)
    shown = (
        f"{node.name}: {ast.unparse(node.returns)}"
        if is_property and node.returns
        else f"{node.name}{_arguments(node)}"
    )
    about = _text(ast.get_docstring(node))
    return f"- `{shown}`" + (f": {_indented(about).lstrip()}" if about else "") + "\n"


def _function(node: Function) -> Iterator[str]:
    yield f"\n#### {node.name}\n```text\n{node.name}{_arguments(node)}\n```\n{_text(ast.get_docstring(node))}\n"


def _arguments(node: Function | None) -> str:
    if node is None:
        return ""
    arguments = ast.unparse(node.args)
    if arguments == "self" or arguments.startswith("self, "):
        arguments = arguments.removeprefix("self").removeprefix(", ")
    returns = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    return f"({arguments}){returns}"


def _text(docstring: str | None) -> str:
    return (docstring or "").strip()


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in text.splitlines())
