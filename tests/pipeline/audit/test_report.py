"""The text of an audit report."""

from __future__ import annotations

import pytest

from chronik.pipeline.audit.findings import Finding, FindingKind
from chronik.pipeline.audit.report import AuditReport


@pytest.mark.parametrize("kind", FindingKind)
def test_every_kind_of_finding_fails_one_check(kind: FindingKind) -> None:
    report = AuditReport(nodes=(1,), tables=1, rows=10, metadata_index=7, findings=[Finding(kind, "a problem")])
    failed = [line for line in report.to_text().splitlines() if line.startswith("FAILED ")]
    assert len(failed) == 1


def test_report_without_findings_fails_no_check() -> None:
    report = AuditReport(nodes=(1,), tables=1, rows=10, metadata_index=7)
    assert "FAILED" not in report.to_text()
    assert "ok     10 rows of 1 table match their records" in report.to_text()
