"""The audit: reads what every node has on disk, and says whether all of it is as it must be.

    from chronik.pipeline.audit import audit

    report = audit(["node1/data", "node2/data", "node3/data"], bootstrap="127.0.0.1:9092", table_root="tables")
    print(report.text())

`walk` goes over the batches of a replica and tells whatever is wrong with them alone; `digests` sums chunks of offsets
up, so that replicas are compared by a few bytes; `narrowing` (of compacted partitions `surviving`) looks where they
differ, and names the record; `rows` compares tables with the log; `state` and `groups` look at the metadata. `standing`
knows what there is to look at, `planning` cuts it into tasks, `logs` and `tabling` have them run, `run` does it all.
"""

from chronik.pipeline.audit.findings import Finding, Kind
from chronik.pipeline.audit.report import Report
from chronik.pipeline.audit.run import CannotLook, audit

__all__ = ["CannotLook", "Finding", "Kind", "Report", "audit"]
