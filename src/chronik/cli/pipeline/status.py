"""`chronik pipeline status`, `pause` and `resume`: progress of pipelines, and control of their landing."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from chronik.cli.arguments import add_client_arguments, add_json_argument, connect_cluster, parse_bootstrap_access
from chronik.cli.output import format_table, print_json
from chronik.client.cluster import ClusterClient
from chronik.client.errors import ClientError
from chronik.escaping import raw_stream
from chronik.protocol.errors import KafkaError

if TYPE_CHECKING:
    from chronik.pipeline.journal.pipeline_status import PartitionStatus, TopicStatus
    from chronik.pipeline_journal import PipelineTopicKey

EXIT_OK, EXIT_UNHEALTHY = 0, 1

WATCH_SECONDS: Final = 2.0
CLEAR_SCREEN: Final = "\x1b[H\x1b[2J"

TOPIC_COLUMNS: Final = ("PIPELINE", "TOPIC", "STATE", "LAG", "ROWS/S", "ROWS", "DEAD", "REPORTED", "DRIVER")
PARTITION_COLUMNS: Final = ("TOPIC", "PARTITION", "LANDED TO", "END", "LAG")

UNHEALTHY_STATES: Final = ("failing", "silent")


def add_arguments(actions: Any) -> None:
    status = actions.add_parser("status", help="show the progress, lag and errors of pipelines")
    _add_common_arguments(status, run_status)
    status.add_argument("--watch", action="store_true", help=f"refresh every {WATCH_SECONDS:g} seconds until Ctrl-C")
    add_json_argument(status, help="print JSON (with --watch, one line per refresh)")
    pause = actions.add_parser("pause", help="stop landing topics after the current round, until resumed")
    _add_common_arguments(pause, run_pause)
    add_json_argument(pause)
    resume = actions.add_parser("resume", help="continue landing paused topics")
    _add_common_arguments(resume, run_resume)
    add_json_argument(resume)


def _add_common_arguments(parser: argparse.ArgumentParser, run: Any) -> None:
    add_client_arguments(parser, run)
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="topics (default: all topics of the pipeline)")
    parser.add_argument("--pipeline", metavar="NAME", help="pipeline, if there are several: the --group of its run")


# status


def run_status(arguments: argparse.Namespace) -> int:
    with connect_cluster(arguments) as cluster:
        if not arguments.watch:
            return _print_status(arguments, cluster)
        while True:
            if sys.stdout.isatty() and not arguments.json:
                print(end=CLEAR_SCREEN, file=raw_stream(sys.stdout))
            try:
                _print_status(arguments, cluster)
            except (ClientError, KafkaError) as error:  # keep watching: the error may be temporary
                print(f"chronik: {error}", file=sys.stderr)
            sys.stdout.flush()
            time.sleep(WATCH_SECONDS)


def _print_status(arguments: argparse.Namespace, cluster: ClusterClient) -> int:
    from chronik.pipeline.journal.pipeline_status import fetch_pipeline_status

    found = fetch_pipeline_status(cluster, pipeline=arguments.pipeline, topics=arguments.topics or None)
    if arguments.json:
        report = {"topics": [asdict(topic) | {"lag": topic.lag} for topic in found]}
        print(json.dumps(report)) if arguments.watch else print_json(report)
    else:
        print(format_status(found))
    return EXIT_UNHEALTHY if any(topic.state in UNHEALTHY_STATES for topic in found) else EXIT_OK


def format_status(topics: Sequence[TopicStatus]) -> str:
    """Format the pipeline status of topics as tables, with notes about problems."""
    if not topics:
        return "no pipeline has reported its status; start one with `chronik pipeline run`"
    parts = [
        format_table(TOPIC_COLUMNS, map(_build_topic_row, topics)),
        format_table(PARTITION_COLUMNS, _build_partition_rows(topics)),
    ]
    notes = [note for topic in topics for note in _format_notes(topic)]
    return "\n\n".join([*parts, "\n".join(notes)] if notes else parts)


def _build_topic_row(topic: TopicStatus) -> tuple[str | int | None, ...]:
    from chronik.pipeline.journal.progress_bar import format_duration

    state = f"{topic.state}, pausing" if topic.pause_asked and topic.state != "paused" else topic.state
    return (
        topic.pipeline,
        topic.topic,
        state,
        topic.lag,
        round(topic.rows_per_second),
        topic.total_rows,
        topic.total_dead_letters,
        f"{format_duration(topic.quiet_seconds)} ago",
        f"{topic.host}:{topic.pid}",
    )


def _build_partition_rows(topics: Sequence[TopicStatus]) -> list[tuple[str | int | None, ...]]:
    return [
        (topic.topic, each.partition, each.next_offset, each.high_watermark, each.lag)
        for topic in topics
        for each in topic.partitions
    ]


def _format_notes(topic: TopicStatus) -> list[str]:
    from chronik.pipeline.journal.progress_bar import format_duration

    notes = [
        f"{topic.topic}: column {name}: {count:,} of {topic.round_rows:,} values of the last round did not fit and are"
        " in _rescued"
        for name, count in topic.misfits.items()
    ]
    if topic.is_silent:
        notes.append(
            f"{topic.topic}: no report for {format_duration(topic.quiet_seconds)} from {topic.host}:{topic.pid}"
        )
    if topic.last_error is not None:
        when = ""
        if topic.last_error_ms is not None:
            when = f", {format_duration(max(0.0, time.time() - topic.last_error_ms / 1000))} ago"
        notes.append(f"{topic.topic}: last error{when}: {topic.last_error}")
    notes += [
        _describe_blocking_transaction(topic.topic, each) for each in topic.partitions if each.held_by is not None
    ]
    return notes


def _describe_blocking_transaction(topic: str, partition: PartitionStatus) -> str:
    """Describe the open transaction that blocks a pipeline's reads, and its producer."""
    from chronik.pipeline.journal.progress_bar import format_duration

    holder = partition.held_by
    assert holder is not None
    name = f"producer {holder.producer_id}, epoch {holder.producer_epoch}"
    if holder.transactional_id is not None:
        name = f"transactional id {holder.transactional_id} ({name})"
    if holder.last_ms >= 0:
        name += f", whose last record is {format_duration(max(0.0, time.time() - holder.last_ms / 1000))} old"
    return f"{topic}-{partition.partition}: blocked at offset {holder.start_offset} by the open transaction of {name}"


# pause, resume


def run_pause(arguments: argparse.Namespace) -> int:
    from chronik.pipeline.journal.pipeline_status import pause

    requests = pause(parse_bootstrap_access(arguments), arguments.pipeline, arguments.topics, arguments.timeout)
    return _print_requests(arguments, requests, "will pause after the current round")


def run_resume(arguments: argparse.Namespace) -> int:
    from chronik.pipeline.journal.pipeline_status import resume

    requests = resume(parse_bootstrap_access(arguments), arguments.pipeline, arguments.topics, arguments.timeout)
    return _print_requests(arguments, requests, "will resume")


def _print_requests(arguments: argparse.Namespace, requests: Sequence[PipelineTopicKey], what: str) -> int:
    _warn_if_unknown(arguments)
    if arguments.json:
        print_json([place._asdict() for place in requests])
        return EXIT_OK
    for place in requests:
        print(f"{place.pipeline}: {'every topic' if place.topic == '*' else place.topic} {what}")
    return EXIT_OK


def _warn_if_unknown(arguments: argparse.Namespace) -> None:
    """Warn the user if no driver has reported for the named pipeline.

    It may not have started, or the name may be misspelled.
    """
    from chronik.pipeline.journal.pipeline_status import list_reported_pipelines

    if arguments.pipeline is None:
        return
    known = list_reported_pipelines(parse_bootstrap_access(arguments), arguments.timeout)
    if arguments.pipeline not in known:
        known_text = f"known pipelines: {', '.join(known) or 'none'}"
        warning = (
            f"pipeline {arguments.pipeline} has not reported yet ({known_text}): the request applies when it starts"
        )
        print(warning, file=sys.stderr)
