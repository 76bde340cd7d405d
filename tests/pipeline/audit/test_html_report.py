"""The report of an audit as an HTML page."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

from chronik.cli.main import main
from chronik.pipeline.audit.findings import Finding, FindingKind
from chronik.pipeline.audit.html_report import iter_html, write_html_report
from chronik.pipeline.audit.report import AuditReport
from chronik.testing import Broker

NOW = datetime(2026, 11, 19, 16, 0, tzinfo=UTC)
HOSTILE = "<script>alert(1)</script>\"' onload=\u202e\ud800"


class Page(HTMLParser):
    """The elements, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.open: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes |= {name for name, _ in attrs}
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def parse(report: AuditReport) -> Page:
    page = Page("".join(iter_html(report, NOW)))
    assert not page.open, "all elements are closed"
    return page


def test_page_has_everything_that_the_text_has() -> None:
    report = AuditReport(
        nodes=(1, 2),
        tables=1,
        rows=10,
        metadata_index=7,
        findings=[
            Finding(FindingKind.LOST_ROW, "offset 5 has no row", "orders", 0, offset=5),
            Finding(FindingKind.CHECKSUM, "the checksum is wrong", "orders", 0, 1, 7, None, "/data/0.log", 61),
        ],
        notes=["node 2 lags"],
        unchecked=["node 3 was not given"],
    )
    page = parse(report)
    for each in (
        "Audit of nodes 1, 2", "2026-11-19 16:00:00 UTC", report.conclusion, report.totals, "lost_row",
        "orders-0, offset 5", "offset 5 has no row", "/data/0.log, byte 61", "node 2 lags", "node 3 was not given",
        *(check.statement for check in report.list_checks()),
    ):  # fmt: skip
        assert each in page.text
    assert page.tags["tr"] == len(report.list_checks()) + 1 + len(report.findings)


def test_names_in_data_cannot_change_the_page() -> None:
    finding = Finding(FindingKind.DIVERGED, HOSTILE, HOSTILE, 0, file=HOSTILE)
    page = parse(AuditReport(nodes=(1,), findings=[finding], notes=[HOSTILE], unchecked=[HOSTILE]))
    assert page.tags["script"] == 0
    assert page.attributes == {"lang", "charset", "http-equiv", "content", "name", "class"}
    assert page.text.count("<script>alert(1)</script>") == 5


def test_page_loads_nothing() -> None:
    page = parse(AuditReport(nodes=(1,)))
    assert set(page.tags) == {
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "h1",
        "h2",
        "p",
        "table",
        "tbody",
        "tr",
        "td",
    }
    assert "url(" not in page.text
    assert "No problems found." in page.text


def test_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    write_html_report(AuditReport(nodes=(1,), notes=[HOSTILE]), path)
    assert path.read_text().startswith("<!doctype html>")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


def test_command_writes_page(chronik_broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.html"
    words = ["pipeline", "audit", "--data-dir", str(chronik_broker.data_dir), "-b", chronik_broker.bootstrap]
    code = main([*words, "--html", str(path)])
    assert "Read " in capsys.readouterr().out
    assert code in (0, 1, 2)
    assert "<h2>Checks</h2>" in path.read_text()
    assert main([*words, "--html", str(tmp_path / "missing" / "report.html")]) == 2
    assert "its directory does not exist" in capsys.readouterr().err
