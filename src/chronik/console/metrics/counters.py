"""Metrics with a bounded number of series, read from existing counters in one event-loop iteration.

Resource usage of the process has the names of the Prometheus client libraries.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

import chronik
from chronik.api.routing.metrics import ApiMeter, get_error_name
from chronik.api.routing.router import Router
from chronik.api.shared.context import Services
from chronik.broker.flusher import SyncMetrics
from chronik.broker.partition_counters import PartitionChangeCounters
from chronik.console.metrics.families import FAMILIES, build_single_sample_metric
from chronik.console.status_source import BucketCounts, Metric, NodeStats, Sample
from chronik.health.problems import KINDS
from chronik.health.reports import HealthReport
from chronik.histogram import Histogram
from chronik.metadata.commands.brokers import BrokerStatus
from chronik.metadata.image import Image
from chronik.metadata.records import TransactionState
from chronik.protocol.apis import APIS, FETCH_KEY, PRODUCE_KEY
from chronik.quorum.watchdog import EventLoopWatchdog
from chronik.registry.request_metrics import RegistryRequestMeter
from chronik.server.listener import ClientListeners

CONNECTION: Final = "connection"
"""Value of the `quota` label for connections that the connection rate quota (`max.connection.creation.rate`) delays."""


def cpu_seconds() -> float:
    """Return the user and system CPU time of all threads."""
    return time.process_time()


def memory_bytes() -> int | None:
    """Return the resident memory of the process, or None if the system does not report it."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def open_files() -> int | None:
    """Return the number of open file descriptors, or None if the system does not report it.

    Linux reports the number since 6.2. Before, the descriptors are listed, which takes 5 ms for 10,000.
    """
    try:
        return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))
    except OSError:
        return None


def open_files_max() -> int | None:
    """Return the maximum number of open file descriptors, or None if there is no limit."""
    if sys.platform == "win32":
        return None
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if limit == resource.RLIM_INFINITY else limit


def iter_process_metrics(started_seconds: float) -> Iterator[Metric]:
    """Yield Prometheus's standard `process_…` metrics, as far as the operating system provides them."""
    yield build_single_sample_metric("process_cpu_seconds_total", cpu_seconds())
    yield build_single_sample_metric("process_start_time_seconds", started_seconds)
    found = {
        "process_resident_memory_bytes": memory_bytes(),
        "process_open_fds": open_files(),
        "process_max_fds": open_files_max(),
    }
    for name, value in found.items():
        if value is not None:
            yield build_single_sample_metric(name, value)


class MetricSources(msgspec.Struct, frozen=True):
    """The components of a node that provide its metrics."""

    services: Services
    router: Router
    listener: ClientListeners
    changes: PartitionChangeCounters
    record_syncs: SyncMetrics
    metadata_syncs: Callable[[], Histogram]
    watchdog: EventLoopWatchdog
    raft: Callable[[], Mapping[str, int]]
    """A callback that returns the values of the `chronik_raft_…` families by name suffix; empty in standalone mode."""
    started_seconds: float
    """Start time of the node in seconds since the Unix epoch."""


def iter_counter_metrics(parts: MetricSources) -> Iterator[Metric]:
    """Yield the metrics whose number of time series does not grow with the number of topics and groups."""
    yield from iter_health_metrics(parts.services.latest_health())
    yield from iter_api_metrics(parts.router.meters)
    yield from iter_registry_metrics(parts.services.registry_meter)
    yield from _iter_network_metrics(parts)
    yield from _iter_disk_metrics(parts)
    yield from _iter_leadership_change_metrics(parts)
    yield from iter_image_metrics(parts.services.image)
    for name, value in parts.raft().items():
        yield build_single_sample_metric(f"chronik_raft_{name}", value)
    yield FAMILIES["chronik_loop_lateness_seconds"].with_samples([Sample(parts.watchdog.timer_delays)])
    yield build_single_sample_metric("chronik_loop_longest_stall_seconds", parts.watchdog.longest_stall_seconds)
    about = {"version": chronik.__version__, "node_id": str(parts.services.node_id)}
    yield FAMILIES["chronik_build_info"].with_samples([Sample(1, about)])
    yield from iter_process_metrics(parts.started_seconds)


def iter_api_metrics(meters: Mapping[int, ApiMeter]) -> Iterator[Metric]:
    """Yield the request metrics of each Kafka API: counts, and latencies and errors where there are any."""
    named = [(APIS[key].name, meter) for key, meter in meters.items()]
    counts: dict[str, Callable[[ApiMeter], int]] = {
        "chronik_requests_total": lambda meter: meter.requests,
        "chronik_request_failures_total": lambda meter: meter.failures,
        "chronik_received_bytes_total": lambda meter: meter.received_bytes,
        "chronik_sent_bytes_total": lambda meter: meter.sent_bytes,
    }
    for name, count in counts.items():
        yield FAMILIES[name].with_samples([Sample(count(meter), {"api": api}) for api, meter in named])
    latencies = (
        (api, answered, histogram)
        for api, meter in named
        for answered, histogram in (("at_once", meter.immediate), ("later", meter.deferred))
    )
    yield FAMILIES["chronik_request_seconds"].with_samples(
        Sample(histogram, {"api": api, "answered": answered})
        for api, answered, histogram in latencies
        if histogram.count
    )
    yield FAMILIES["chronik_request_errors_total"].with_samples(
        Sample(count, {"api": api, "code": get_error_name(code)})
        for api, meter in named
        for code, count in meter.errors.items()
    )


def iter_health_metrics(report: HealthReport | None) -> Iterator[Metric]:
    """Yield the number of problems by kind and severity. Kinds without a problem have the value 0."""
    counts = Counter((each.kind, each.severity.label) for each in report.problems) if report is not None else Counter()
    without = {kind for kind in KINDS if kind not in {found for found, _ in counts}} if report is not None else ()
    yield FAMILIES["chronik_problems"].with_samples(
        [
            *(Sample(count, {"kind": kind, "severity": severity}) for (kind, severity), count in counts.items()),
            *(Sample(0, {"kind": kind, "severity": KINDS[kind].severity.label}) for kind in sorted(without)),
        ]
    )
    checked_at_s = report.checked_at_s if report is not None else 0
    yield build_single_sample_metric("chronik_problems_checked_seconds", checked_at_s)


def iter_registry_metrics(meter: RegistryRequestMeter) -> Iterator[Metric]:
    """Yield the metrics of the requests to the schema registry."""
    yield FAMILIES["chronik_registry_request_seconds"].with_samples(
        [Sample(histogram, {"operation": operation}) for operation, histogram in meter.latencies.items()]
    )
    yield FAMILIES["chronik_registry_errors_total"].with_samples(
        [
            Sample(count, {"operation": operation, "code": str(code)})
            for (operation, code), count in meter.errors.items()
        ]
    )


def _iter_network_metrics(parts: MetricSources) -> Iterator[Metric]:
    yield build_single_sample_metric("chronik_unsent_bytes", parts.services.outbox.unsent_bytes)
    yield build_single_sample_metric("chronik_large_requests_bytes", parts.listener.reserved_bytes)
    counters_by_listener = [({"listener": name}, each) for name, each in parts.listener.connection_stats.items()]
    yield FAMILIES["chronik_connections"].with_samples(
        [Sample(each.open, labels) for labels, each in counters_by_listener]
    )
    yield FAMILIES["chronik_connections_accepted_total"].with_samples(
        [Sample(each.accepted, labels) for labels, each in counters_by_listener]
    )
    yield FAMILIES["chronik_connections_refused_total"].with_samples(
        [Sample(each.rejected, labels) for labels, each in counters_by_listener]
    )
    limiter, counters = parts.router.limiter, parts.listener.connection_stats.values()
    waits: dict[str, Mapping[str, float]] = {
        "chronik_throttled_requests_total": {
            **limiter.throttled_counts,
            CONNECTION: sum(each.throttled for each in counters),
        },
        "chronik_throttled_seconds_total": {
            **limiter.throttled_seconds,
            CONNECTION: sum(each.throttled_seconds for each in counters),
        },
    }
    for name, by_quota in waits.items():
        yield FAMILIES[name].with_samples([Sample(value, {"quota": quota}) for quota, value in by_quota.items()])


def _iter_disk_metrics(parts: MetricSources) -> Iterator[Metric]:
    records = parts.record_syncs
    histograms = {"records": records.durations, "metadata": parts.metadata_syncs()}
    yield FAMILIES["chronik_sync_seconds"].with_samples(
        [Sample(times, {"log": log}) for log, times in histograms.items()]
    )
    yield build_single_sample_metric("chronik_syncs_total", records.count)
    yield build_single_sample_metric("chronik_slow_syncs_total", records.slow_count)
    yield build_single_sample_metric("chronik_longest_sync_seconds", records.longest_seconds)


def _iter_leadership_change_metrics(parts: MetricSources) -> Iterator[Metric]:
    yield build_single_sample_metric("chronik_fenced", parts.services.is_fenced())
    yield build_single_sample_metric("chronik_isr_shrinks_total", parts.changes.isr_shrinks)
    yield build_single_sample_metric("chronik_isr_expands_total", parts.changes.isr_expands)
    yield build_single_sample_metric("chronik_leader_elections_total", parts.changes.elections)
    yield build_single_sample_metric("chronik_unclean_leader_elections_total", parts.changes.unclean_elections)


def iter_image_metrics(image: Image) -> Iterator[Metric]:
    """Yield the metrics about the metadata image, the node's copy of the cluster metadata."""
    statuses = [broker.status for broker in image.brokers.values()]
    yield build_single_sample_metric("chronik_metadata_applied_index", image.applied_index)
    yield FAMILIES["chronik_brokers"].with_samples(
        [Sample(statuses.count(status), {"status": status.name.lower()}) for status in BrokerStatus]
    )
    yield build_single_sample_metric("chronik_topics", len(image.topics))
    yield build_single_sample_metric("chronik_groups", len(image.groups))
    unfinished = list(image.unfinished_transactions())
    began = [each.began_ms for each in unfinished if each.state is TransactionState.ONGOING]
    yield build_single_sample_metric("chronik_transactional_ids", len(image.transactions))
    yield build_single_sample_metric("chronik_open_transactions", len(began))
    yield build_single_sample_metric("chronik_decided_transactions", len(unfinished) - len(began))
    yield build_single_sample_metric("chronik_oldest_open_transaction_began_seconds", min(began) / 1000 if began else 0)


def collect_node_stats(meters: Mapping[int, ApiMeter], connections: int) -> NodeStats:
    """Return the node's cumulative statistics, summed up from the request meters of all APIs."""
    produce, fetch = meters[PRODUCE_KEY], meters[FETCH_KEY]
    return NodeStats(
        in_bytes=sum(meter.received_bytes for meter in meters.values()),
        out_bytes=sum(meter.sent_bytes for meter in meters.values()),
        requests=sum(meter.requests for meter in meters.values()),
        errors=sum(sum(meter.errors.values()) for meter in meters.values()),
        connections=connections,
        memory_bytes=memory_bytes(),
        cpu_seconds=cpu_seconds(),
        produce_counts=_sum_buckets((produce.immediate.counts, produce.deferred.counts)),
        fetch_counts=tuple(fetch.immediate.counts),
    )


def _sum_buckets(counts: Iterable[Iterable[int]]) -> BucketCounts:
    return tuple(map(sum, zip(*counts, strict=True)))
