"""`chronik pipeline status`, `pause` and `resume`: how pipelines are doing, and which of them are to rest."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from chronik.cli.arguments import add_client_arguments, add_json_argument, bootstrap_of, cluster_of
from chronik.cli.output import print_json, table
from chronik.client.cluster import Cluster
from chronik.client.errors import ClientError
from chronik.protocol.errors import KafkaError
from chronik.shown import unescaped

if TYPE_CHECKING:
    from chronik.pipeline.journal.journal import Place
    from chronik.pipeline.journal.status import PartitionStatus, TopicStatus

EXIT_OK, EXIT_NEEDS_CARE = 0, 1

WATCH_SECONDS: Final = 2.0
CLEAR_SCREEN: Final = "\x1b[H\x1b[2J"

TOPIC_COLUMNS: Final = ("PIPELINE", "TOPIC", "STATE", "LAG", "ROWS/S", "ROWS", "DEAD", "NEWS", "DRIVER")
PARTITION_COLUMNS: Final = ("TOPIC", "PARTITION", "LANDED TO", "END", "LAG")

UNWELL: Final = ("failing", "silent")


def add_arguments(actions: Any) -> None:
    status = actions.add_parser("status", help="show progress, lag and errors of pipelines")
    _add_common_arguments(status, run_status)
    status.add_argument("--watch", action="store_true", help=f"show it every {WATCH_SECONDS:g} seconds, until Ctrl-C")
    add_json_argument(status, help="print JSON (with --watch a line of it each time)")
    pause = actions.add_parser("pause", help="stop landing topics after the rounds that run, until they are resumed")
    _add_common_arguments(pause, run_pause)
    add_json_argument(pause)
    resume = actions.add_parser("resume", help="go on landing topics that were paused")
    _add_common_arguments(resume, run_resume)
    add_json_argument(resume)


def _add_common_arguments(parser: argparse.ArgumentParser, run: Any) -> None:
    add_client_arguments(parser, run)
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="which topics (default: all of the pipeline)")
    parser.add_argument("--pipeline", metavar="NAME", help="which pipeline, if there are more: the --group of its run")


# status


def run_status(arguments: argparse.Namespace) -> int:
    with cluster_of(arguments) as cluster:
        if not arguments.watch:
            return _show(arguments, cluster)
        while True:
            if sys.stdout.isatty() and not arguments.json:
                print(end=CLEAR_SCREEN, file=unescaped(sys.stdout))
            try:
                _show(arguments, cluster)
            except (ClientError, KafkaError) as error:  # it comes back, or whoever watches has seen enough
                print(f"chronik: {error}", file=sys.stderr)
            sys.stdout.flush()
            time.sleep(WATCH_SECONDS)


def _show(arguments: argparse.Namespace, cluster: Cluster) -> int:
    from chronik.pipeline.journal.status import ask_status

    found = ask_status(cluster, pipeline=arguments.pipeline, topics=arguments.topics or None)
    if arguments.json:
        report = {"topics": [asdict(topic) | {"lag": topic.lag} for topic in found]}
        print(json.dumps(report)) if arguments.watch else print_json(report)
    else:
        print(described(found))
    return EXIT_NEEDS_CARE if any(topic.state in UNWELL for topic in found) else EXIT_OK


def described(topics: Sequence[TopicStatus]) -> str:
    """Formats it for people."""
    if not topics:
        return "no pipeline has reported: `chronik pipeline run` does"
    parts = [table(TOPIC_COLUMNS, map(_row, topics)), table(PARTITION_COLUMNS, _partition_rows(topics))]
    notes = [note for topic in topics for note in _notes(topic)]
    return "\n\n".join([*parts, "\n".join(notes)] if notes else parts)


def _row(topic: TopicStatus) -> tuple[str | int | None, ...]:
    from chronik.pipeline.journal.bars import span

    state = f"{topic.state}, to pause" if topic.pause_asked and topic.state != "paused" else topic.state
    return (
        topic.pipeline,
        topic.topic,
        state,
        topic.lag,
        round(topic.rows_per_second),
        topic.total_rows,
        topic.total_dead_letters,
        f"{span(topic.quiet_seconds)} ago",
        f"{topic.host}:{topic.pid}",
    )


def _partition_rows(topics: Sequence[TopicStatus]) -> list[tuple[str | int | None, ...]]:
    return [
        (topic.topic, each.partition, each.next_offset, each.high_watermark, each.lag)
        for topic in topics
        for each in topic.partitions
    ]


def _notes(topic: TopicStatus) -> list[str]:
    from chronik.pipeline.journal.bars import span

    notes = []
    if topic.is_silent:
        notes.append(f"{topic.topic}: no news for {span(topic.quiet_seconds)} from {topic.host}:{topic.pid}")
    if topic.last_error is not None:
        when = ""
        if topic.last_error_ms is not None:
            when = f", {span(max(0.0, time.time() - topic.last_error_ms / 1000))} ago"
        notes.append(f"{topic.topic}: last error{when}: {topic.last_error}")
    notes += [_held(topic.topic, each) for each in topic.partitions if each.held_by is not None]
    return notes


def _held(topic: str, partition: PartitionStatus) -> str:
    """Names the producer: whoever runs it can end its transaction, and nobody else knows why nothing lands."""
    from chronik.pipeline.journal.bars import span

    holder = partition.held_by
    assert holder is not None
    name = f"producer {holder.producer_id}, epoch {holder.producer_epoch}"
    if holder.transactional_id is not None:
        name = f"transactional id {holder.transactional_id} ({name})"
    if holder.last_ms >= 0:
        name += f", whose last record is {span(max(0.0, time.time() - holder.last_ms / 1000))} old"
    return f"{topic}-{partition.partition}: held up at offset {holder.start_offset} by the open transaction of {name}"


# pause, resume


def run_pause(arguments: argparse.Namespace) -> int:
    from chronik.pipeline.journal.status import pause

    told = pause(bootstrap_of(arguments), arguments.pipeline, arguments.topics, arguments.timeout)
    return _say_told(arguments, told, "pauses after the round that runs")


def run_resume(arguments: argparse.Namespace) -> int:
    from chronik.pipeline.journal.status import resume

    told = resume(bootstrap_of(arguments), arguments.pipeline, arguments.topics, arguments.timeout)
    return _say_told(arguments, told, "goes on")


def _say_told(arguments: argparse.Namespace, told: Sequence[Place], what: str) -> int:
    _warn_of_a_stranger(arguments)
    if arguments.json:
        print_json([place._asdict() for place in told])
        return EXIT_OK
    for place in told:
        print(f"{place.pipeline}: {'every topic' if place.topic == '*' else place.topic} {what}")
    return EXIT_OK


def _warn_of_a_stranger(arguments: argparse.Namespace) -> None:
    """Warns of a pipeline that was never heard of: it may be about to start, or its name may be wrong."""
    from chronik.pipeline.journal.status import reported_pipelines

    if arguments.pipeline is None:
        return
    known = reported_pipelines(bootstrap_of(arguments), arguments.timeout)
    if arguments.pipeline not in known:
        there = f"there is {', '.join(known) or 'none'}"
        said = f"no pipeline {arguments.pipeline} has reported yet ({there}): it will be told if it ever starts"
        print(said, file=sys.stderr)
