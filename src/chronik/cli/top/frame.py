"""Layout of one frame of `chronik top` in a given width and height. Free of I/O.

The header, the problems and the nodes come first; topics and groups share the remaining lines. No line exceeds the
width, and the frame never exceeds the height.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Final, NamedTuple

from chronik.cli.doctor.findings import Severity
from chronik.cli.top.figures import clipped, padded, short, signed, size, span, width_of
from chronik.cli.top.view import GroupRow, NodeRow, TopicRow, View
from chronik.shown import escaped
from chronik.wording import counted

PROBLEMS_DIVISOR: Final = 4
"""Divisors of the height: problems take at most a fourth of the lines, nodes at most a third."""
NODES_DIVISOR: Final = 3
ROWS_MIN: Final = 1
ROWS_UNLIMITED: Final = 20
"""Maximum rows of each table if the height is unlimited."""

HASH_CHARACTERS: Final = 8


class Style(Enum):
    PLAIN = ""
    TITLE = "title"
    HEADING = "heading"
    ERROR = "error"
    WARNING = "warning"
    FAINT = "faint"


class Line(NamedTuple):
    text: str
    style: Style = Style.PLAIN


class Sorting(Enum):
    TRAFFIC = "traffic"
    SIZE = "size"
    NAME = "name"

    @property
    def next(self) -> Sorting:
        members = list(Sorting)
        return members[(members.index(self) + 1) % len(members)]


def frame(
    view: View, width: int, height: int | None, *, sorting: Sorting = Sorting.TRAFFIC, footer: str = ""
) -> list[Line]:
    """Lay out a view; a `height` of None is unlimited."""
    head = [*_header_lines(view), *([Line(footer, Style.FAINT)] if footer else [])]
    head, last = (head[:-1], head[-1:]) if footer else (head, [])
    attention, nodes = _problem_lines(view), _node_lines(view, width)
    topics, groups = _topic_lines(view, sorting, width), _group_lines(view, width)
    unseen = _failure_lines(view)
    if height is None:
        sections = [_shorten(section, 1 + ROWS_UNLIMITED) for section in (attention, nodes, topics, groups)]
        return _clip_lines([*head, *_join_sections(sections), *_join_sections([unseen])], width)
    available_lines = height - len(head) - len(last)
    attention = _shorten(attention, max(2, available_lines // PROBLEMS_DIVISOR))
    nodes = _shorten(nodes, max(2, available_lines // NODES_DIVISOR))
    unseen = _shorten(unseen, max(2, available_lines // PROBLEMS_DIVISOR))
    fixed = _join_sections([attention, nodes, unseen])
    left = available_lines - len(fixed) - 2  # blank lines between sections
    topics, groups = _split_lines(topics, groups, left)
    body = _join_sections([attention, nodes, topics, groups, unseen])
    lines = [*head, *body][: max(0, height - len(last))]
    lines += [Line("")] * (height - len(last) - len(lines))
    return _clip_lines([*lines, *last][:height], width)


def _join_sections(sections: Iterable[Sequence[Line]]) -> list[Line]:
    """Join the non-empty sections, with a blank line before each."""
    return [line for section in sections if section for line in (Line(""), *section)]


def _shorten(section: Sequence[Line], lines_max: int) -> list[Line]:
    """Shorten a section to a number of lines; the last one says how many rows are omitted."""
    if len(section) <= lines_max:
        return list(section)
    left_out = len(section) - lines_max + 1
    return [*section[: lines_max - 1], Line(f"  … {left_out} more", Style.FAINT)]


def _split_lines(topics: Sequence[Line], groups: Sequence[Line], available_lines: int) -> tuple[list[Line], list[Line]]:
    """Split the lines evenly between topics and groups; lines that one does not need go to the other."""
    if available_lines < 2:
        return [], []
    half = max(2, available_lines // 2)
    for_groups = min(len(groups), max(half, available_lines - len(topics)))
    for_topics = min(len(topics), max(0, available_lines - for_groups))
    return _shorten(topics, for_topics) if for_topics > 1 else [], _shorten(
        groups, for_groups
    ) if for_groups > 1 else []


def _clip_lines(lines: Iterable[Line], width: int) -> list[Line]:
    return [Line(clipped(escaped(line.text), width), line.style) for line in lines]


# Sections


def _header_lines(view: View) -> list[Line]:
    facts = view.facts
    when = datetime.fromtimestamp(facts.time_ms / 1000, UTC).strftime("%H:%M:%S UTC")
    controller_text = f"controller: node {facts.controller}" if facts.controller is not None else "no controller"
    term = f", term {facts.term}" if facts.term is not None else ""
    level = f"   level {facts.level}" if facts.level is not None else ""
    first = (
        f"chronik top   {when}   {facts.cluster_id or facts.asked}   {facts.verdict}   {controller_text}{term}{level}"
    )
    has_problem = facts.same_state is False or facts.controller is None
    offline = sum(topic.offline for topic in view.topics)
    under_replicated_count = sum(topic.under_replicated for topic in view.topics)
    second = (
        f"{short(view.records_s)} records/s   {size(view.written_bytes_s)}/s written   "
        f"{short(view.requests_s)} requests/s   {counted(len(view.topics), 'topic')}, "
        f"{counted(len(facts.partitions), 'partition')}"
        + (f", {offline} OFFLINE" if offline else "")
        + (f", {under_replicated_count} under-replicated" if under_replicated_count else "")
    )
    return [
        Line(first, Style.ERROR if has_problem else Style.TITLE),
        Line(second, Style.ERROR if offline else Style.PLAIN),
    ]


def _problem_lines(view: View) -> list[Line]:
    if not view.attention:
        return []
    styles = {Severity.ERROR: Style.ERROR, Severity.WARNING: Style.WARNING}
    rows = [Line(f"  {each.what}", styles.get(each.severity, Style.PLAIN)) for each in view.attention]
    return [Line("PROBLEMS (chronik doctor suggests fixes)", Style.HEADING), *rows]


def _failure_lines(view: View) -> list[Line]:
    if not view.facts.unseen:
        return []
    rows = [Line(f"  {each.what}: {each.why}", Style.FAINT) for each in view.facts.unseen]
    return [Line("NOT COLLECTED", Style.HEADING), *rows]


class FrameColumn(NamedTuple):
    heading: str
    get_text: Callable[..., str]
    right: bool = True
    optional: bool = False
    """Whether the column is omitted if all its cells are empty."""
    drop_priority: int = 0
    """Order in which columns are dropped if the width is too small, highest first; 0 is never dropped."""


_NODES: Final = (
    FrameColumn("NODE", lambda row: str(row.node.id)),
    FrameColumn("STATUS", lambda row: row.node.status, right=False),
    FrameColumn("ROLE", lambda row: row.node.role or "-", right=False),
    FrameColumn("TERM", lambda row: _format_int(row.node.term), optional=True, drop_priority=4),
    FrameColumn("APPLIED", lambda row: _format_int(row.node.applied_index), optional=True, drop_priority=3),
    FrameColumn("LOG END", lambda row: _format_int(row.node.log_end), optional=True, drop_priority=9),
    FrameColumn(
        "STATE", lambda row: (row.node.state_hash or "-")[:HASH_CHARACTERS], right=False, optional=True, drop_priority=5
    ),
    FrameColumn("REQ/s", lambda row: short(row.requests_s), optional=True),
    FrameColumn("IN/s", lambda row: size(row.in_bytes_s), optional=True, drop_priority=2),
    FrameColumn("OUT/s", lambda row: size(row.out_bytes_s), optional=True, drop_priority=2),
    FrameColumn("WRITTEN/s", lambda row: size(row.written_bytes_s), optional=True, drop_priority=1),
    FrameColumn("LOGS", lambda row: size(row.node.log_bytes), optional=True, drop_priority=6),
    FrameColumn("FREE", lambda row: size(row.node.disk_free_bytes), optional=True, drop_priority=7),
    FrameColumn("CLIENTS", lambda row: _format_int(row.node.connections), optional=True, drop_priority=7),
    FrameColumn("UP", lambda row: span(row.node.uptime_s), optional=True, drop_priority=8),
    FrameColumn("VERSION", lambda row: row.node.version or "-", right=False, optional=True, drop_priority=10),
    FrameColumn("KAFKA", lambda row: row.node.kafka or "-", right=False, drop_priority=11),
)
_TOPICS: Final = (
    FrameColumn("TOPIC", lambda row: row.name, right=False),
    FrameColumn("PARTITIONS", lambda row: str(row.partitions), drop_priority=2),
    FrameColumn("REPLICAS", lambda row: str(row.replicas), drop_priority=3),
    FrameColumn("RECORDS/s", lambda row: short(row.records_s)),
    FrameColumn("WRITTEN/s", lambda row: size(row.written_bytes_s), drop_priority=1),
    FrameColumn("SIZE", lambda row: size(row.bytes)),
    FrameColumn(
        "UNDER-REPLICATED", lambda row: str(row.under_replicated) if row.under_replicated else "-", optional=True
    ),
    FrameColumn("OFFLINE", lambda row: str(row.offline) if row.offline else "-", optional=True),
)
_GROUPS: Final = (
    FrameColumn("GROUP", lambda row: row.group.name, right=False),
    FrameColumn("STATE", lambda row: row.group.state or "-", right=False),
    FrameColumn("LAG", lambda row: _format_lag(row)),
    FrameColumn("CHANGE/s", lambda row: signed(row.lag_change_s)),
)

NAME_CHARACTERS_MAX: Final = 60
"""Maximum length of topic and group names, so that the numbers stay visible."""


def _node_lines(view: View, width: int) -> list[Line]:
    styles = {"down": Style.ERROR, "fenced": Style.ERROR, "drained": Style.WARNING, "not known": Style.WARNING}

    def style(row: NodeRow) -> Style:
        return styles.get(row.node.status, Style.PLAIN)

    return _table_lines(_NODES, view.nodes, style, width)


def _topic_lines(view: View, sorting: Sorting, width: int) -> list[Line]:
    """Return the table of topics. Internal topics are shown only if they have problems."""
    shown = [row for row in view.topics if not row.is_internal or row.under_replicated or row.offline]
    if sorting is Sorting.SIZE:
        shown.sort(key=lambda row: (-(row.bytes or 0), row.name))
    elif sorting is Sorting.NAME:
        shown.sort(key=lambda row: row.name)

    def style(row: TopicRow) -> Style:
        return Style.ERROR if row.offline else Style.WARNING if row.under_replicated else Style.PLAIN

    return _table_lines(_TOPICS, shown, style, width)


def _group_lines(view: View, width: int) -> list[Line]:
    return _table_lines(_GROUPS, view.groups, lambda row: Style.PLAIN, width)


def _table_lines(
    columns: Sequence[FrameColumn], rows: Sequence[object], style: Callable[..., Style], width: int
) -> list[Line]:
    if not rows:
        return []
    cells = [[clipped(escaped(column.get_text(row)), NAME_CHARACTERS_MAX) for row in rows] for column in columns]
    shown = _fit_columns(width, [_ColumnCells(*each) for each in zip(columns, cells, strict=True)])

    def joined(texts: Iterable[str]) -> str:
        parts = zip(shown, texts, strict=True)
        return "  ".join(padded(text, each.width, right=each.column.right) for each, text in parts).rstrip()

    heading = Line(joined(each.column.heading for each in shown), Style.HEADING)
    lines = zip(*(each.texts for each in shown), strict=True)
    return [heading, *(Line(joined(line), style(row)) for line, row in zip(lines, rows, strict=True))]


class _ColumnCells(NamedTuple):
    column: FrameColumn
    texts: Sequence[str]

    @property
    def width(self) -> int:
        return max(map(width_of, (self.column.heading, *self.texts)))


def _fit_columns(width: int, filled: Iterable[_ColumnCells]) -> list[_ColumnCells]:
    """Drop empty optional columns, then droppable ones until the rest fits into the width."""
    shown = [each for each in filled if not each.column.optional or any(text != "-" for text in each.texts)]
    while sum(each.width + 2 for each in shown) - 2 > width:
        drop_priority = max(shown, key=lambda each: each.column.drop_priority)
        if not drop_priority.column.drop_priority:
            break
        shown.remove(drop_priority)
    return shown


def _format_int(value: int | None) -> str:
    return "-" if value is None else str(value)


def _format_lag(row: GroupRow) -> str:
    if row.group.lag is None:
        return "-"
    return f"{row.group.lag:,}" + ("" if row.group.is_lag_whole else "+")
