"""The audit: reads what every node has on disk, and says whether all of it is as it must be.

    from chronik.pipeline.audit import audit

    report = audit(["node1/data", "node2/data", "node3/data"], bootstrap="127.0.0.1:9092", table_root="tables")
    print(report.text())

`standing` knows what there is to look at, `logs` compares replicas, `rows` compares tables with the log, `state` and
`groups` look at the metadata, and `run` does it all.
"""

from chronik.pipeline.audit.findings import Finding, Kind
from chronik.pipeline.audit.report import Report
from chronik.pipeline.audit.run import CannotLook, audit

__all__ = ["CannotLook", "Finding", "Kind", "Report", "audit"]
