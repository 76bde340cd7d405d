"""One frame: what is shown in so many columns and lines. Pure: a view in, lines out.

What matters most stands first and gets its room first: the verdict, what needs attention, nodes. Topics and groups
share what is left. No line is longer than the width, and there are never more lines than the height.
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

ATTENTION_SHARE: Final = 4
"""A fourth of the lines at most is for what needs attention, and a third for nodes."""
NODES_SHARE: Final = 3
ROWS_LEAST: Final = 1
ROWS_UNLIMITED: Final = 20
"""Rows of each table where nobody limits the height."""

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
    """`height`: None for as many lines as it takes."""
    head = [*_head(view), *([Line(footer, Style.FAINT)] if footer else [])]
    head, last = (head[:-1], head[-1:]) if footer else (head, [])
    attention, nodes = _attention(view), _nodes(view, width)
    topics, groups = _topics(view, sorting, width), _groups(view, width)
    unseen = _unseen(view)
    if height is None:
        sections = [_cut(section, 1 + ROWS_UNLIMITED) for section in (attention, nodes, topics, groups)]
        return _fitted([*head, *_apart(sections), *_apart([unseen])], width)
    room = height - len(head) - len(last)
    attention = _cut(attention, max(2, room // ATTENTION_SHARE))
    nodes = _cut(nodes, max(2, room // NODES_SHARE))
    unseen = _cut(unseen, max(2, room // ATTENTION_SHARE))
    fixed = _apart([attention, nodes, unseen])
    left = room - len(fixed) - 2  # a line between sections
    topics, groups = _shared(topics, groups, left)
    body = _apart([attention, nodes, topics, groups, unseen])
    lines = [*head, *body][: max(0, height - len(last))]
    lines += [Line("")] * (height - len(last) - len(lines))
    return _fitted([*lines, *last][:height], width)


def _apart(sections: Iterable[Sequence[Line]]) -> list[Line]:
    """Puts an empty line before each that there is."""
    return [line for section in sections if section for line in (Line(""), *section)]


def _cut(section: Sequence[Line], lines_max: int) -> list[Line]:
    """Says how many rows are left out."""
    if len(section) <= lines_max:
        return list(section)
    left_out = len(section) - lines_max + 1
    return [*section[: lines_max - 1], Line(f"  … {left_out} more", Style.FAINT)]


def _shared(topics: Sequence[Line], groups: Sequence[Line], room: int) -> tuple[list[Line], list[Line]]:
    """Gives each its half, and what one does not need to the other."""
    if room < 2:
        return [], []
    half = max(2, room // 2)
    for_groups = min(len(groups), max(half, room - len(topics)))
    for_topics = min(len(topics), max(0, room - for_groups))
    return _cut(topics, for_topics) if for_topics > 1 else [], _cut(groups, for_groups) if for_groups > 1 else []


def _fitted(lines: Iterable[Line], width: int) -> list[Line]:
    return [Line(clipped(escaped(line.text), width), line.style) for line in lines]


# Sections


def _head(view: View) -> list[Line]:
    facts = view.facts
    when = datetime.fromtimestamp(facts.time_ms / 1000, UTC).strftime("%H:%M:%S UTC")
    leads = f"node {facts.controller} leads" if facts.controller is not None else "nobody leads"
    term = f", term {facts.term}" if facts.term is not None else ""
    level = f"   level {facts.level}" if facts.level is not None else ""
    first = f"chronik top   {when}   {facts.cluster_id or facts.asked}   {facts.verdict}   {leads}{term}{level}"
    bad = facts.same_state is False or facts.controller is None
    offline = sum(topic.offline for topic in view.topics)
    short_of = sum(topic.under_replicated for topic in view.topics)
    second = (
        f"{short(view.records_s)} records/s   {size(view.written_bytes_s)}/s written   "
        f"{short(view.requests_s)} requests/s   {counted(len(view.topics), 'topic')}, "
        f"{counted(len(facts.partitions), 'partition')}"
        + (f", {offline} OFFLINE" if offline else "")
        + (f", {short_of} under-replicated" if short_of else "")
    )
    return [Line(first, Style.ERROR if bad else Style.TITLE), Line(second, Style.ERROR if offline else Style.PLAIN)]


def _attention(view: View) -> list[Line]:
    if not view.attention:
        return []
    styles = {Severity.ERROR: Style.ERROR, Severity.WARNING: Style.WARNING}
    rows = [Line(f"  {each.what}", styles.get(each.severity, Style.PLAIN)) for each in view.attention]
    return [Line("NEEDS ATTENTION (chronik doctor says what to do)", Style.HEADING), *rows]


def _unseen(view: View) -> list[Line]:
    if not view.facts.unseen:
        return []
    rows = [Line(f"  {each.what}: {each.why}", Style.FAINT) for each in view.facts.unseen]
    return [Line("NOT SEEN", Style.HEADING), *rows]


class Column(NamedTuple):
    heading: str
    of: Callable[..., str]
    right: bool = True
    optional: bool = False
    """Left out when no row has anything there."""
    spared: int = 0
    """Where the width does not do, those with the highest number go first; 0 stays."""


_NODES: Final = (
    Column("NODE", lambda row: str(row.node.id)),
    Column("STATUS", lambda row: row.node.status, right=False),
    Column("ROLE", lambda row: row.node.role or "-", right=False),
    Column("TERM", lambda row: _number(row.node.term), optional=True, spared=4),
    Column("APPLIED", lambda row: _number(row.node.applied_index), optional=True, spared=3),
    Column("LOG END", lambda row: _number(row.node.log_end), optional=True, spared=9),
    Column("STATE", lambda row: (row.node.state_hash or "-")[:HASH_CHARACTERS], right=False, optional=True, spared=5),
    Column("REQ/s", lambda row: short(row.requests_s), optional=True),
    Column("IN/s", lambda row: size(row.in_bytes_s), optional=True, spared=2),
    Column("OUT/s", lambda row: size(row.out_bytes_s), optional=True, spared=2),
    Column("WRITTEN/s", lambda row: size(row.written_bytes_s), optional=True, spared=1),
    Column("LOGS", lambda row: size(row.node.log_bytes), optional=True, spared=6),
    Column("FREE", lambda row: size(row.node.disk_free_bytes), optional=True, spared=7),
    Column("CLIENTS", lambda row: _number(row.node.connections), optional=True, spared=7),
    Column("UP", lambda row: span(row.node.uptime_s), optional=True, spared=8),
    Column("VERSION", lambda row: row.node.version or "-", right=False, optional=True, spared=10),
    Column("KAFKA", lambda row: row.node.kafka or "-", right=False, spared=11),
)
_TOPICS: Final = (
    Column("TOPIC", lambda row: row.name, right=False),
    Column("PARTITIONS", lambda row: str(row.partitions), spared=2),
    Column("REPLICAS", lambda row: str(row.replicas), spared=3),
    Column("RECORDS/s", lambda row: short(row.records_s)),
    Column("WRITTEN/s", lambda row: size(row.written_bytes_s), spared=1),
    Column("SIZE", lambda row: size(row.bytes)),
    Column("NOT IN SYNC", lambda row: str(row.under_replicated) if row.under_replicated else "-", optional=True),
    Column("OFFLINE", lambda row: str(row.offline) if row.offline else "-", optional=True),
)
_GROUPS: Final = (
    Column("GROUP", lambda row: row.group.name, right=False),
    Column("STATE", lambda row: row.group.state or "-", right=False),
    Column("LAG", lambda row: _lag(row)),
    Column("CHANGE/s", lambda row: signed(row.lag_change_s)),
)

NAME_CHARACTERS_MAX: Final = 60
"""Of the names of topics and groups: longer ones would push the figures out of sight."""


def _nodes(view: View, width: int) -> list[Line]:
    styles = {"down": Style.ERROR, "fenced": Style.ERROR, "drained": Style.WARNING, "not known": Style.WARNING}

    def style(row: NodeRow) -> Style:
        return styles.get(row.node.status, Style.PLAIN)

    return _table(_NODES, view.nodes, style, width)


def _topics(view: View, sorting: Sorting, width: int) -> list[Line]:
    """Topics that a cluster has for itself hold no records: they are shown when something is wrong with them."""
    shown = [row for row in view.topics if not row.is_internal or row.under_replicated or row.offline]
    if sorting is Sorting.SIZE:
        shown.sort(key=lambda row: (-(row.bytes or 0), row.name))
    elif sorting is Sorting.NAME:
        shown.sort(key=lambda row: row.name)

    def style(row: TopicRow) -> Style:
        return Style.ERROR if row.offline else Style.WARNING if row.under_replicated else Style.PLAIN

    return _table(_TOPICS, shown, style, width)


def _groups(view: View, width: int) -> list[Line]:
    return _table(_GROUPS, view.groups, lambda row: Style.PLAIN, width)


def _table(columns: Sequence[Column], rows: Sequence[object], style: Callable[..., Style], width: int) -> list[Line]:
    if not rows:
        return []
    cells = [[clipped(escaped(column.of(row)), NAME_CHARACTERS_MAX) for row in rows] for column in columns]
    shown = _within(width, [_Filled(*each) for each in zip(columns, cells, strict=True)])

    def joined(texts: Iterable[str]) -> str:
        parts = zip(shown, texts, strict=True)
        return "  ".join(padded(text, each.width, right=each.column.right) for each, text in parts).rstrip()

    heading = Line(joined(each.column.heading for each in shown), Style.HEADING)
    lines = zip(*(each.texts for each in shown), strict=True)
    return [heading, *(Line(joined(line), style(row)) for line, row in zip(lines, rows, strict=True))]


class _Filled(NamedTuple):
    column: Column
    texts: Sequence[str]

    @property
    def width(self) -> int:
        return max(map(width_of, (self.column.heading, *self.texts)))


def _within(width: int, filled: Iterable[_Filled]) -> list[_Filled]:
    """Leaves out columns that say nothing, then those that can be spared, until the rest fits."""
    shown = [each for each in filled if not each.column.optional or any(text != "-" for text in each.texts)]
    while sum(each.width + 2 for each in shown) - 2 > width:
        spared = max(shown, key=lambda each: each.column.spared)
        if not spared.column.spared:
            break
        shown.remove(spared)
    return shown


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _lag(row: GroupRow) -> str:
    if row.group.lag is None:
        return "-"
    return f"{row.group.lag:,}" + ("" if row.group.is_lag_whole else "+")
