"""Layout of one frame of `chronik top` in a given width and height. Free of I/O.

The header, the problems and the nodes come first; topics and groups share the remaining lines. No line exceeds the
width, and the frame never exceeds the height.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Final, NamedTuple

from chronik.cli.doctor.findings import Severity
from chronik.cli.top.view import GroupRow, NodeRow, TopicRow, TopView
from chronik.escaping import escape
from chronik.wording import pluralize

MISSING: Final = "-"
_UNITS: Final = ("", "k", "M", "G", "T", "P")

PROBLEMS_DIVISOR: Final = 4
"""Divisor of the frame height that limits the list of problems."""
NODES_DIVISOR: Final = 3
ROWS_MIN: Final = 1
ROWS_UNLIMITED: Final = 20
"""Maximum number of table rows in a frame of unlimited height."""

HASH_CHARACTERS: Final = 8


def format_number(value: float | None) -> str:
    """Format a number with at most three digits and an SI prefix: 7, 950, 1.2k, 34k, 5.6M."""
    if value is None:
        return MISSING
    size = abs(value)
    for unit in _UNITS:
        if size < 999.5 or unit == _UNITS[-1]:
            break
        size /= 1000
    text = f"{size:.0f}" if size >= 9.95 or size == int(size) else f"{size:.1f}"
    return f"{'-' if value < 0 else ''}{text}{unit}"


def format_bytes(value: float | None) -> str:
    return MISSING if value is None else f"{format_number(value)}B"


def format_change(value: float | None) -> str:
    """Format a rate of change with its sign: +1.2k, 0, -30."""
    if value is None:
        return MISSING
    return "0" if abs(value) < 0.05 else f"{'+' if value > 0 else ''}{format_number(value)}"


def format_duration(seconds: float | None) -> str:
    """Format a duration with at most two units: 40s, 5m, 2h10m, 3d4h."""
    if seconds is None:
        return MISSING
    whole = int(seconds)
    if whole < 120:
        return f"{whole}s"
    if whole < 7200:
        return f"{whole // 60}m"
    if whole < 172_800:
        return f"{whole // 3600}h{whole % 3600 // 60}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600}h"


def get_display_width(text: str) -> int:
    """Return the width of a text in terminal columns: wide East Asian characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(_get_character_width(character) for character in text)


def _get_character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def clip_text(text: str, width: int) -> str:
    """Shorten a text to a width in terminal columns, with an ellipsis."""
    if get_display_width(text) <= width:
        return text
    found, used = "", 0
    for character in text:
        used += _get_character_width(character)
        if used > width - 1:
            break
        found += character
    return f"{found}…" if width > 0 else ""


def pad_text(text: str, width: int, *, align_right: bool) -> str:
    padding = " " * max(0, width - get_display_width(text))
    return padding + text if align_right else text + padding


class TextStyle(Enum):
    PLAIN = ""
    TITLE = "title"
    HEADING = "heading"
    ERROR = "error"
    WARNING = "warning"
    FAINT = "faint"


class StyledLine(NamedTuple):
    text: str
    style: TextStyle = TextStyle.PLAIN


class TopicOrder(Enum):
    TRAFFIC = "traffic"
    SIZE = "size"
    NAME = "name"

    @property
    def next_order(self) -> TopicOrder:
        members = list(TopicOrder)
        return members[(members.index(self) + 1) % len(members)]


def render_frame(
    view: TopView, width: int, height: int | None, *, order: TopicOrder = TopicOrder.TRAFFIC, footer: str = ""
) -> list[StyledLine]:
    """Render a view of the cluster as lines of text for the terminal.

    If `height` is None, the frame height is unlimited.
    """
    head = [*_render_header(view), *([StyledLine(footer, TextStyle.FAINT)] if footer else [])]
    head, last = (head[:-1], head[-1:]) if footer else (head, [])
    attention, nodes = _render_problems(view), _render_nodes(view, width)
    topics, groups = _render_topics(view, order, width), _render_groups(view, width)
    unseen = _render_failures(view)
    if height is None:
        sections = [_shorten_section(section, 1 + ROWS_UNLIMITED) for section in (attention, nodes, topics, groups)]
        return _clip_lines([*head, *_join_sections(sections), *_join_sections([unseen])], width)
    available_lines = height - len(head) - len(last)
    attention = _shorten_section(attention, max(2, available_lines // PROBLEMS_DIVISOR))
    nodes = _shorten_section(nodes, max(2, available_lines // NODES_DIVISOR))
    unseen = _shorten_section(unseen, max(2, available_lines // PROBLEMS_DIVISOR))
    fixed = _join_sections([attention, nodes, unseen])
    left = available_lines - len(fixed) - 2  # blank lines between sections
    topics, groups = _split_lines(topics, groups, left)
    body = _join_sections([attention, nodes, topics, groups, unseen])
    lines = [*head, *body][: max(0, height - len(last))]
    lines += [StyledLine("")] * (height - len(last) - len(lines))
    return _clip_lines([*lines, *last][:height], width)


def _join_sections(sections: Iterable[Sequence[StyledLine]]) -> list[StyledLine]:
    """Join the lines of the non-empty sections of a frame, with a blank line before each section."""
    return [line for section in sections if section for line in (StyledLine(""), *section)]


def _shorten_section(section: Sequence[StyledLine], lines_max: int) -> list[StyledLine]:
    """Shorten a section of a frame to `lines_max` lines. The last line states how many rows are omitted."""
    if len(section) <= lines_max:
        return list(section)
    left_out = len(section) - lines_max + 1
    return [*section[: lines_max - 1], StyledLine(f"  … {left_out} more", TextStyle.FAINT)]


def _split_lines(
    topics: Sequence[StyledLine], groups: Sequence[StyledLine], available_lines: int
) -> tuple[list[StyledLine], list[StyledLine]]:
    """Divide the frame's lines evenly between the tables of topics and groups.

    Unused lines of one table go to the other.
    """
    if available_lines < 2:
        return [], []
    half = max(2, available_lines // 2)
    for_groups = min(len(groups), max(half, available_lines - len(topics)))
    for_topics = min(len(topics), max(0, available_lines - for_groups))
    return _shorten_section(topics, for_topics) if for_topics > 1 else [], _shorten_section(
        groups, for_groups
    ) if for_groups > 1 else []


def _clip_lines(lines: Iterable[StyledLine], width: int) -> list[StyledLine]:
    return [StyledLine(clip_text(escape(line.text), width), line.style) for line in lines]


# Sections


def _render_header(view: TopView) -> list[StyledLine]:
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
        f"{format_number(view.records_s)} records/s   {format_bytes(view.written_bytes_s)}/s written   "
        f"{format_number(view.requests_s)} requests/s   {pluralize(len(view.topics), 'topic')}, "
        f"{pluralize(len(facts.partitions), 'partition')}"
        + (f", {offline} OFFLINE" if offline else "")
        + (f", {under_replicated_count} under-replicated" if under_replicated_count else "")
    )
    return [
        StyledLine(first, TextStyle.ERROR if has_problem else TextStyle.TITLE),
        StyledLine(second, TextStyle.ERROR if offline else TextStyle.PLAIN),
    ]


def _render_problems(view: TopView) -> list[StyledLine]:
    if not view.attention:
        return []
    styles = {Severity.ERROR: TextStyle.ERROR, Severity.WARNING: TextStyle.WARNING}
    rows = [StyledLine(f"  {each.what}", styles.get(each.severity, TextStyle.PLAIN)) for each in view.attention]
    return [StyledLine("PROBLEMS (chronik doctor suggests fixes)", TextStyle.HEADING), *rows]


def _render_failures(view: TopView) -> list[StyledLine]:
    if not view.facts.unseen:
        return []
    rows = [StyledLine(f"  {each.what}: {each.why}", TextStyle.FAINT) for each in view.facts.unseen]
    return [StyledLine("NOT COLLECTED", TextStyle.HEADING), *rows]


class FrameColumn(NamedTuple):
    heading: str
    get_text: Callable[..., str]
    right: bool = True
    optional: bool = False
    """Whether the column is omitted if all its cells are empty."""
    drop_priority: int = 0
    """Priority with which a narrow terminal omits the column, highest first; 0 means never."""


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
    FrameColumn("REQ/s", lambda row: format_number(row.requests_s), optional=True),
    FrameColumn("IN/s", lambda row: format_bytes(row.in_bytes_s), optional=True, drop_priority=2),
    FrameColumn("OUT/s", lambda row: format_bytes(row.out_bytes_s), optional=True, drop_priority=2),
    FrameColumn("WRITTEN/s", lambda row: format_bytes(row.written_bytes_s), optional=True, drop_priority=1),
    FrameColumn("LOGS", lambda row: format_bytes(row.node.log_bytes), optional=True, drop_priority=6),
    FrameColumn("FREE", lambda row: format_bytes(row.node.disk_free_bytes), optional=True, drop_priority=7),
    FrameColumn("CLIENTS", lambda row: _format_int(row.node.connections), optional=True, drop_priority=7),
    FrameColumn("UP", lambda row: format_duration(row.node.uptime_s), optional=True, drop_priority=8),
    FrameColumn("VERSION", lambda row: row.node.version or "-", right=False, optional=True, drop_priority=10),
    FrameColumn("KAFKA", lambda row: row.node.kafka or "-", right=False, drop_priority=11),
)
_TOPICS: Final = (
    FrameColumn("TOPIC", lambda row: row.name, right=False),
    FrameColumn("PARTITIONS", lambda row: str(row.partitions), drop_priority=2),
    FrameColumn("REPLICAS", lambda row: str(row.replicas), drop_priority=3),
    FrameColumn("RECORDS/s", lambda row: format_number(row.records_s)),
    FrameColumn("WRITTEN/s", lambda row: format_bytes(row.written_bytes_s), drop_priority=1),
    FrameColumn("SIZE", lambda row: format_bytes(row.bytes)),
    FrameColumn(
        "UNDER-REPLICATED", lambda row: str(row.under_replicated) if row.under_replicated else "-", optional=True
    ),
    FrameColumn("OFFLINE", lambda row: str(row.offline) if row.offline else "-", optional=True),
)
_GROUPS: Final = (
    FrameColumn("GROUP", lambda row: row.group.name, right=False),
    FrameColumn("STATE", lambda row: row.group.state or "-", right=False),
    FrameColumn("LAG", lambda row: _format_lag(row)),
    FrameColumn("CHANGE/s", lambda row: format_change(row.lag_change_s)),
)

NAME_CHARACTERS_MAX: Final = 60
"""Maximum length of topic and group names, so that the numbers stay visible."""


def _render_nodes(view: TopView, width: int) -> list[StyledLine]:
    styles = {
        "down": TextStyle.ERROR,
        "fenced": TextStyle.ERROR,
        "drained": TextStyle.WARNING,
        "not known": TextStyle.WARNING,
    }

    def style(row: NodeRow) -> TextStyle:
        return styles.get(row.node.status, TextStyle.PLAIN)

    return _render_table(_NODES, view.nodes, style, width)


def _render_topics(view: TopView, sorting: TopicOrder, width: int) -> list[StyledLine]:
    """Return the table of topics. Internal topics are included only if they have problems."""
    shown = [row for row in view.topics if not row.is_internal or row.under_replicated or row.offline]
    if sorting is TopicOrder.SIZE:
        shown.sort(key=lambda row: (-(row.bytes or 0), row.name))
    elif sorting is TopicOrder.NAME:
        shown.sort(key=lambda row: row.name)

    def style(row: TopicRow) -> TextStyle:
        return TextStyle.ERROR if row.offline else TextStyle.WARNING if row.under_replicated else TextStyle.PLAIN

    return _render_table(_TOPICS, shown, style, width)


def _render_groups(view: TopView, width: int) -> list[StyledLine]:
    return _render_table(_GROUPS, view.groups, lambda row: TextStyle.PLAIN, width)


def _render_table(
    columns: Sequence[FrameColumn], rows: Sequence[object], style: Callable[..., TextStyle], width: int
) -> list[StyledLine]:
    if not rows:
        return []
    cells = [[clip_text(escape(column.get_text(row)), NAME_CHARACTERS_MAX) for row in rows] for column in columns]
    shown = _fit_columns(width, [_ColumnCells(*each) for each in zip(columns, cells, strict=True)])

    def joined(texts: Iterable[str]) -> str:
        parts = zip(shown, texts, strict=True)
        return "  ".join(pad_text(text, each.width, align_right=each.column.right) for each, text in parts).rstrip()

    heading = StyledLine(joined(each.column.heading for each in shown), TextStyle.HEADING)
    lines = zip(*(each.texts for each in shown), strict=True)
    return [heading, *(StyledLine(joined(line), style(row)) for line, row in zip(lines, rows, strict=True))]


class _ColumnCells(NamedTuple):
    column: FrameColumn
    texts: Sequence[str]

    @property
    def width(self) -> int:
        return max(map(get_display_width, (self.column.heading, *self.texts)))


def _fit_columns(width: int, filled: Iterable[_ColumnCells]) -> list[_ColumnCells]:
    """Remove columns until the table fits the width: empty optional columns first, then by priority."""
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
