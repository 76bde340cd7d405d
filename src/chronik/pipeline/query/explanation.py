"""Explanation of what a query reads: rows, files and bytes of the landed rows, and offsets and bytes of the live tail.

The figures come from the metadata of tables, the offsets of partitions and the batches of a small tail. The query is
planned, but not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chronik.client.access.settings import Bootstrap
from chronik.client.cluster import ClusterClient
from chronik.formats.registry_client import RegistrySettings
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.query.conditions import Operator
from chronik.pipeline.query.file_pruning import SkipReason
from chronik.pipeline.query.name_resolution import TopicViewScope
from chronik.pipeline.query.pruning import PrunedSnapshot, is_prunable, is_worthwhile
from chronik.pipeline.query.sql import analyze_query
from chronik.pipeline.query.tail_size import measure_ranges
from chronik.pipeline.query.views import build_read_settings
from chronik.pipeline.source.offset_ranges import OffsetRange
from chronik.pipeline.tables.table_files import LiveFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class FileTotals:
    """Totals of data files."""

    files: int
    rows: int | None
    """Number of rows, or None if a file has no statistics."""
    bytes: int


@dataclass(frozen=True, slots=True)
class ViewExplanation:
    """What a query reads through one view of a topic."""

    view: str
    topic: str
    conditions: tuple[tuple[str, ...], ...]
    """The conditions by which each reference to the view can skip rows."""
    table: str | None
    """Format of the table; None if the view has no landed rows."""
    version: int | None
    read: FileTotals
    skipped: Mapping[SkipReason, FileTotals]
    tail: tuple[OffsetRange, ...]
    """The offset ranges that are read. Offsets without a record count, too."""
    tail_skipped: int
    """Number of offsets that are skipped."""
    tail_bytes: int | None = None
    """Size of the batches with these offsets, or None if it is unknown or large."""

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as JSON values."""
        return {
            "view": self.view,
            "topic": self.topic,
            "conditions": [list(conditions) for conditions in self.conditions],
            "landed": {
                "format": self.table,
                "version": self.version,
                **_to_json(self.read),
                "skipped": {str(reason): _to_json(totals) for reason, totals in self.skipped.items()},
            },
            "tail": {
                "offsets": sum(each.size for each in self.tail),
                "bytes": self.tail_bytes,
                "skipped_offsets": self.tail_skipped,
                "ranges": [{"partition": each.partition, "start": each.start, "end": each.end} for each in self.tail],
            },
        }


@dataclass(frozen=True, slots=True)
class QueryExplanation:
    """What a query reads."""

    reads_all_because: str | None
    """Why the conditions of the query skip nothing; None if they are known."""
    views: tuple[ViewExplanation, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as JSON values."""
        return {"reads_all_because": self.reads_all_because, "views": [each.to_json() for each in self.views]}


def explain_query(
    spark: SparkSession,
    statement: str,
    bootstrap: Bootstrap,
    table_root: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    registry: RegistrySettings | None = None,
) -> QueryExplanation:
    """Explain what a query would read now, if it were the only statement of `chronik pipeline sql`.

    Raises:
        InvalidQueryError: The statement is no query.
        ChronikError, PySparkException: As for `chronik.pipeline.query.sql.query`.
    """
    prepared = analyze_query(
        spark, statement, bootstrap, table_root, storage_options=storage_options, registry=registry
    )
    scans = [scan for name, scan in prepared.pruned.items() if name not in prepared.rejected and scan.references != ()]
    settings = build_read_settings(bootstrap)
    with ClusterClient(bootstrap, client_id=CLIENT_ID) as cluster:
        views = tuple(explain_scan(scan, lambda ranges: measure_ranges(cluster, ranges, settings)) for scan in scans)
    return QueryExplanation(_find_reason(statement, scans), views)


def _find_reason(statement: str, scans: Iterable[PrunedSnapshot]) -> str | None:
    known = list(scans)
    if all(each.references is not None for each in known):
        return None
    if not is_prunable(statement):
        return "the query has no WHERE, HAVING or JOIN"
    if not any(is_worthwhile(each.whole) for each in known):
        return "there are few files and records"
    return "Spark did not report the conditions of the query"


def explain_scan(
    scan: PrunedSnapshot, measure: Callable[[Sequence[OffsetRange]], int | None] = lambda _: None
) -> ViewExplanation:
    """Return what a query reads of a snapshot. `measure` returns the bytes of offset ranges, if it knows them."""
    half = scan.view.half
    landed = None if half is TopicViewScope.HOT else scan.whole.table_snapshot
    files = () if landed is None else landed.live_files
    reasons = scan.skipped or (None,) * len(files)
    by_reason: dict[SkipReason | None, list[LiveFile]] = {}
    for file, reason in zip(files, reasons, strict=False):
        by_reason.setdefault(reason, []).append(file)
    has_tail = half is not TopicViewScope.COLD
    tail, whole_tail = (scan.snapshot.tail, scan.whole.tail) if has_tail else ((), ())
    return ViewExplanation(
        view=scan.view.name,
        topic=scan.view.topic,
        conditions=tuple(
            tuple(str(each) for each in conditions if each.operator is not Operator.IS_NOT_NULL)
            for conditions in scan.references or ()
        ),
        table=None if landed is None else str(landed.spec.table_format),
        version=None if landed is None else landed.version,
        read=_sum_files(by_reason.get(None, [])),
        skipped={reason: _sum_files(by_reason.get(reason, [])) for reason in SkipReason},
        tail=tail,
        tail_skipped=sum(each.size for each in whole_tail) - sum(each.size for each in tail),
        tail_bytes=measure(tail) if tail else 0,
    )


def _sum_files(files: list[LiveFile]) -> FileTotals:
    rows = [file.rows for file in files if file.rows is not None]
    return FileTotals(
        len(files), sum(rows) if len(rows) == len(files) else None, sum(file.size_bytes for file in files)
    )


def _to_json(totals: FileTotals) -> dict[str, Any]:
    return {"files": totals.files, "rows": totals.rows, "bytes": totals.bytes}
