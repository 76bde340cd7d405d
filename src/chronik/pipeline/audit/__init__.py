"""The audit: a comparison of all replicas, the metadata, committed offsets and tables, byte by byte.

    from chronik.pipeline.audit import audit

    report = audit(["node1/data", "node2/data", "node3/data"], bootstrap="127.0.0.1:9092", table_root="tables")
    print(report.to_text())

`partition_plan` lists the partitions to audit, `log_comparison` compares replicas, `table_comparison` compares tables
with the log, `metadata_state` and `group_offsets` check the metadata, and `runner` runs all checks.
"""

from chronik.pipeline.audit.findings import Finding, FindingKind
from chronik.pipeline.audit.report import AuditReport
from chronik.pipeline.audit.runner import AuditInputError, audit

__all__ = ["AuditInputError", "AuditReport", "Finding", "FindingKind", "audit"]
