"""Generator of docs/reference/python-api.md: signatures and docstrings of the public API, without importing it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

SOURCES: Final = Path(__file__).parents[2] / "src"
PAGE: Final = Path("docs", "reference", "python-api.md")
INTRODUCTION: Final = """\
# Python API

This page documents the public Python API of Chronik. Other names may change without notice.

| package | purpose |
|---|---|
| [`chronik.testing`](#chroniktesting) | real brokers and clusters for tests |
| [`chronik.client`](#chronikclient) | a small blocking client for scripts and tools |
| [`chronik.pipeline`](#chronikpipeline) | topics as tables, with Spark |

Applications use a [Kafka client](client-compatibility.md) instead of `chronik.client`.
"""
SECTION: Final = re.compile(r"(Args|Raises|Returns|Yields):")
LINE_CHARACTERS_MAX: Final = 100
ENTRY: Final = re.compile(r"(\w+(?:, \w+)*): (.*)")


class ApiSection(NamedTuple):
    """A section of the page and the modules it documents."""

    title: str
    about: str
    modules: tuple[tuple[str, tuple[str, ...]], ...]
    """Modules and the names to document; empty for all public names."""


PARTS: Final = (
    ApiSection(
        "chronik.testing",
        "Real brokers and clusters for tests. Import these names from `chronik.testing`. For examples, see "
        "[Test with Chronik](../guides/testing.md).",
        (
            ("chronik.testing.broker", ("Broker",)),
            ("chronik.testing.secured", ("SecuredBroker",)),
            ("chronik.testing.cluster", ("Cluster", "ClusterNode")),
            ("chronik.testing.control", ("BrokerFailed",)),
            ("chronik.testing.decoded", ("DecodedRecord",)),
            ("chronik.testing.seen", ("SeenRequest",)),
        ),
    ),
    ApiSection(
        "chronik.client",
        "A blocking client for scripts, tests and tools. It works with any Kafka broker. Create a `ClusterClient`, and "
        "pass it to `Producer`, `Consumer` and the functions of the other modules. A request without a usable response "
        "raises ClientError; an error code in a response raises KafkaError.",
        (
            ("chronik.client.cluster", ("ClusterClient",)),
            ("chronik.client.records", ()),
            ("chronik.client.producer", ("Producer", "AcknowledgedRecords")),
            ("chronik.client.transaction", ("ProducerTransaction",)),
            ("chronik.client.consumer", ()),
            ("chronik.client.admin", ()),
            ("chronik.client.configs", ()),
            ("chronik.client.groups", ()),
            ("chronik.client.offsets", ("list_earliest_offsets", "list_latest_offsets", "list_offsets")),
            ("chronik.client.partitions", ()),
            ("chronik.client.transactions", ()),
            (
                "chronik.client.access.settings",
                ("ClientSecurity", "BootstrapAccess", "read_properties", "parse_security"),
            ),
            ("chronik.client.errors", ()),
        ),
    ),
    ApiSection(
        "chronik.pipeline",
        "Topics as tables, with Spark. Requires the extra `spark`. For examples, see "
        "[Topics as tables](../guides/pipeline.md).",
        (
            ("chronik.pipeline.spark.runtime", ("session",)),
            ("chronik.pipeline.spark.jvm", ("SparkUnavailableError",)),
            ("chronik.pipeline.source.lag", ("compute_offsets_behind_latest",)),
            ("chronik.pipeline.landing.runner", ("run",)),
            ("chronik.pipeline.landing.driver", ("LandingSummary", "LandingFailedError")),
            ("chronik.pipeline.table_maintenance.settings", ("MaintenanceOptions",)),
            ("chronik.pipeline.query.sql", ("query",)),
            ("chronik.pipeline.query.views", ("views", "CreatedViews", "UnknownTopicError")),
            ("chronik.pipeline.query.spark_catalog", ("register_tables", "TableNameConflictError")),
            ("chronik.pipeline.audit.runner", ("audit",)),
            ("chronik.pipeline.audit.data_directories", ("AuditInputError",)),
            ("chronik.pipeline.audit.report", ("AuditReport",)),
            ("chronik.pipeline.audit.findings", ("Finding", "FindingKind")),
            ("chronik.pipeline.maintenance.compaction", ("compact_tables", "CompactionFailedError")),
            ("chronik.pipeline.maintenance.replay", ("replay",)),
            ("chronik.pipeline.maintenance.dead_letters", ("list_dead_letters", "retry_dead_letters")),
            ("chronik.pipeline.errors", ()),
        ),
    ),
)

SEPARATOR: Final = "\n\n"
Function = ast.FunctionDef | ast.AsyncFunctionDef


def generate_page() -> str:
    return INTRODUCTION + "".join(line for part in PARTS for line in _part(part))


def _part(part: ApiSection) -> Iterator[str]:
    yield f"\n## {part.title}\n{part.about}\n"
    for module, names in part.modules:
        tree = ast.parse((SOURCES / (module.replace(".", "/") + ".py")).read_text(encoding="utf-8"))
        documented = [node for node in tree.body if _is_documented(node, names)]
        assert len(documented) >= len(names), f"{module} does not have all of {names}"
        yield f"\n### {module}\n"
        if not names:  # otherwise the module's docstring describes more than what is documented here
            yield f"{_text(ast.get_docstring(tree)).partition(SEPARATOR)[0]}\n"
        for node in documented:
            yield from _class(node) if isinstance(node, ast.ClassDef) else _function(node)  # type: ignore[arg-type]


def _is_documented(node: ast.stmt, names: tuple[str, ...]) -> bool:
    if not isinstance(node, ast.ClassDef | Function):
        return False
    return node.name in names if names else not node.name.startswith("_")


def _class(node: ast.ClassDef) -> Iterator[str]:
    bases = ", ".join(map(ast.unparse, node.bases))
    init = next((each for each in node.body if isinstance(each, Function) and each.name == "__init__"), None)
    has_init = init is not None or not bases
    heading = _wrapped_signature(f"class {node.name}", init) if has_init else f"class {node.name}({bases})"
    yield f"\n#### {node.name}\n```text\n{heading}\n```\n"
    yield "".join(
        f"{text}\n\n" for each in (node, init) if each is not None and (text := _text(ast.get_docstring(each)))
    )
    fields = list(iter_fields(node))
    if fields:
        yield (
            "| field | description |\n|---|---|\n"
            + "".join(f"| `{name}` | {about} |\n" for name, about in fields)
            + "\n"
        )
    methods = [each for each in node.body if isinstance(each, Function) and not each.name.startswith("_")]
    if methods:
        yield "Members:\n\n" + "".join(map(_method, methods))


def iter_fields(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield the fields of a class with their types, defaults and docstrings."""
    following_nodes = [*node.body[1:], None]
    for each, after in zip(node.body, following_nodes, strict=True):
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
    documented = (
        f"{node.name}: {ast.unparse(node.returns)}"
        if is_property and node.returns
        else f"{node.name}{_arguments(node)}"
    )
    about = _text(ast.get_docstring(node))
    end = "\n\n" if SEPARATOR in about else "\n"  # Python-Markdown needs an empty line after a nested list
    return f"- `{documented}`" + (f": {_indent(about).lstrip()}" if about else "") + end


def _function(node: Function) -> Iterator[str]:
    signature = _wrapped_signature(node.name, node)
    yield f"\n#### {node.name}\n```text\n{signature}\n```\n{_text(ast.get_docstring(node))}\n"


def _wrapped_signature(name: str, node: Function | None) -> str:
    """Return the signature of a function, with one argument per line if it is long."""
    signature = f"{name}{_arguments(node)}"
    if node is None or len(signature) <= LINE_CHARACTERS_MAX:
        return signature
    return "\n".join((f"{name}(", *(f"    {text}," for text in _argument_texts(node)), f"){_returns(node)}"))


def _arguments(node: Function | None) -> str:
    return "" if node is None else f"({', '.join(_argument_texts(node))}){_returns(node)}"


def _returns(node: Function) -> str:
    return f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""


def _argument_texts(node: Function) -> list[str]:
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [*[None] * (len(positional) - len(given.defaults)), *given.defaults]
    texts = [_argument(each, default) for each, default in zip(positional, defaults, strict=True) if each.arg != "self"]
    if given.vararg is not None:
        texts.append(f"*{_argument(given.vararg, None)}")
    elif given.kwonlyargs:
        texts.append("*")
    texts += map(_argument, given.kwonlyargs, given.kw_defaults)
    if given.kwarg is not None:
        texts.append(f"**{_argument(given.kwarg, None)}")
    return texts


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    annotation = f": {ast.unparse(argument.annotation)}" if argument.annotation else ""
    return f"{argument.arg}{annotation}" + (f" = {ast.unparse(default)}" if default is not None else "")


def _text(docstring: str | None) -> str:
    """Return a docstring as Markdown: sections such as "Raises:" become lists."""
    lines: list[str] = []
    section = ""
    for line in (docstring or "").strip().splitlines():
        if found := SECTION.fullmatch(line):
            section = found[1]
            lines += [f"{section}:", ""]
        elif not section or not line.startswith(" "):
            section = section if line == "" else ""
            lines.append(line)
        elif entry := ENTRY.fullmatch(line.strip()):
            names = ", ".join(f"`{name}`" for name in entry[1].split(", "))
            lines.append(f"- {names}: {entry[2]}")
        else:
            lines.append(f"  {line.strip()}")
    return "\n".join(lines)


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.splitlines())
