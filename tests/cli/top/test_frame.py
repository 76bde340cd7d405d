"""Rates, order and layout of the frames of `chronik top`."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from chronik.cli.monitoring.facts import ClusterFacts, GroupFacts, UncollectedFact
from chronik.cli.top.frame import (
    TextStyle,
    TopicOrder,
    clip_text,
    format_bytes,
    format_change,
    format_duration,
    format_number,
    get_display_width,
    render_frame,
)
from chronik.cli.top.view import TopView, build_view
from tests.cli.monitoring.healthy_facts import cluster, partition, with_node


def facts_after(facts: ClusterFacts, seconds: float = 2.0, **changes: object) -> ClusterFacts:
    return replace(facts, monotonic_s=facts.monotonic_s + seconds, **changes)


def render(view: TopView, width: int = 160, height: int | None = None, sorting: TopicOrder = TopicOrder.TRAFFIC) -> str:
    return "\n".join(line.text for line in render_frame(view, width, height, order=sorting))


# Rates


def test_rates_are_differences_per_second() -> None:
    before = with_node(cluster(groups=(GroupFacts("g", "Stable", 100),)), 1, requests=100, bytes_in=0, log_bytes=5000)
    now = with_node(
        facts_after(
            before,
            partitions=tuple(replace(each, end=20, bytes=3000) for each in before.partitions),
            groups=(GroupFacts("g", "Stable", 40),),
        ),
        1,
        requests=150,
        bytes_in=4000,
        log_bytes=9000,
    )
    view = build_view(now, before)
    assert view.seconds == 2.0
    first = view.nodes[0]
    assert (first.requests_s, first.in_bytes_s, first.out_bytes_s, first.written_bytes_s) == (25, 2000, None, 2000)
    [orders] = view.topics
    assert (orders.records_s, orders.written_bytes_s, orders.bytes) == (30, 6000, 18_000)
    assert view.groups[0].lag_change_s == -30
    assert (view.records_s, view.written_bytes_s, view.requests_s) == (30, 6000, 25)


def test_view_without_previous_facts_has_no_rates() -> None:
    view = build_view(cluster(), None)
    assert (view.records_s, view.requests_s, view.seconds) == (None, None, None)
    assert "- records/s" in render(view)


def test_reset_counter_has_no_rate() -> None:
    before = with_node(cluster(), 1, requests=100)
    assert build_view(with_node(facts_after(before), 1, requests=7), before).nodes[0].requests_s is None


def test_facts_of_same_moment_have_no_rates() -> None:
    before = cluster()
    assert build_view(facts_after(before, 0.0), before).records_s is None


# Order


def busy_view() -> TopView:
    before = cluster(
        partitions=(
            partition("large", 0, 1, end=5, bytes=9_000_000),
            partition("busy", 0, 2, end=0, bytes=10),
            partition("idle", 0, 3, end=0, bytes=0),
        ),
        groups=(GroupFacts("near", "Stable", 1), GroupFacts("far", "Empty", 5000), GroupFacts("unknown", "Stable")),
    )
    large, busy_view, idle = before.partitions
    return build_view(facts_after(before, partitions=(large, replace(busy_view, end=100), idle)), before)


def order(text: str, *words: str) -> list[str]:
    return sorted(words, key=lambda word: text.index(f"\n{word} "))


def test_topics_are_sorted_by_key_and_groups_by_lag() -> None:
    view = busy_view()
    assert order(render(view), "large", "busy", "idle") == ["busy", "large", "idle"]
    assert order(render(view, sorting=TopicOrder.SIZE), "large", "busy", "idle") == ["large", "busy", "idle"]
    assert order(render(view, sorting=TopicOrder.NAME), "large", "busy", "idle") == ["busy", "idle", "large"]
    assert order(render(view), "near", "far", "unknown") == ["far", "near", "unknown"]
    assert TopicOrder.TRAFFIC.next_order.next_order.next_order is TopicOrder.TRAFFIC


def test_internal_topics_are_shown_only_with_problems() -> None:
    internal = partition("__consumer_offsets", 0, 1, is_internal=True)
    facts = cluster(partitions=(internal,))
    assert "__consumer_offsets" not in render(build_view(facts, None))
    assert "__consumer_offsets" in render(build_view(replace(facts, partitions=(replace(internal, isr=(1,)),)), None))


# Contents


def test_frame_shows_controller_state_and_nodes() -> None:
    text = render(build_view(cluster(), None))
    assert "3 of 3 agree" in text
    assert "controller: node 1, term 3" in text
    assert [line.split()[:3] for line in text.splitlines() if line.startswith("   ")] == [
        ["1", "online", "leader"],
        ["2", "online", "follower"],
        ["3", "online", "follower"],
    ]
    assert "abababab " in text


def test_problems_are_shown_before_nodes() -> None:
    view = build_view(with_node(cluster(same_state=False), 2, status="down", silence="Connection refused"), None)
    lines = render_frame(view, 120, 40)
    assert lines[0].style is TextStyle.ERROR
    assert "DIFFERENT STATES" in lines[0].text
    heading = next(number for number, line in enumerate(lines) if line.text.startswith("PROBLEMS"))
    nodes = next(number for number, line in enumerate(lines) if line.text.startswith("NODE "))
    assert heading < nodes
    assert "nodes have different metadata" in lines[heading + 1].text
    assert "node 2 is unreachable" in lines[heading + 2].text
    assert lines[heading + 1].style is TextStyle.ERROR


def test_facts_that_could_not_be_collected_are_shown_with_reason() -> None:
    text = render(build_view(cluster(unseen=(UncollectedFact("/status of 127.0.0.1:8083", "token required"),)), None))
    assert "NOT COLLECTED\n  /status of 127.0.0.1:8083: token required" in text


def test_empty_optional_columns_are_omitted() -> None:
    text = render(build_view(cluster(), None))
    assert "IN/s" not in text
    assert "IN/s" in render(view_with_bytes())


def view_with_bytes() -> TopView:
    before = with_node(cluster(), 1, bytes_in=0)
    return build_view(with_node(facts_after(before), 1, bytes_in=1000), before)


# Size


def crowded_view() -> TopView:
    names = [f"topic-{number:03d}" for number in range(100)]
    return build_view(
        cluster(
            partitions=tuple(partition(name, 0, 1 + number % 3) for number, name in enumerate(names)),
            groups=tuple(GroupFacts(f"group-{number:03d}", "Stable", number) for number in range(100)),
            transactions=(),
            unseen=tuple(UncollectedFact(f"thing {number}", "why " * 30) for number in range(30)),
            same_state=False,
        ),
        None,
    )


@pytest.mark.parametrize("height", [*range(1, 12), 24, 50, 400])
@pytest.mark.parametrize("width", [1, 10, 40, 80, 200])
def test_frame_has_exact_height_and_never_exceeds_width(width: int, height: int) -> None:
    for view in (crowded_view(), build_view(cluster(), None)):
        lines = render_frame(view, width, height, footer="q: quit")
        assert len(lines) == height
        assert all(get_display_width(line.text) <= width for line in lines)
        assert "\n" not in "".join(line.text for line in lines)


def test_omitted_rows_are_counted() -> None:
    text = render(crowded_view(), 120, 40)
    assert " more" in text
    assert "topic-000" in text
    assert "group-099" in text, "the group with the highest lag"
    unlimited = render(crowded_view())
    assert "… 81 more" in unlimited, "tables are limited"


def test_small_window_shows_topics_and_groups() -> None:
    text = render(crowded_view(), 80, 24)
    assert "TOPIC" in text
    assert "GROUP" in text


def test_narrow_frame_drops_least_important_columns() -> None:
    view = build_view(cluster(), None)
    wide, narrow = render(view, 200), render(view, 60)
    assert "VERSION" in wide
    assert "VERSION" not in narrow
    assert "STATUS" in narrow
    assert "…" not in narrow.split("NODE ")[1].splitlines()[0]


def test_escape_sequences_in_names_are_escaped() -> None:
    view = build_view(cluster(groups=(GroupFacts("\x1b[2Jevil\n", "Stable", 5),)), None)
    assert "\x1b" not in render(view)
    assert "\\x1b[2Jevil\\n" in render(view)


def test_wide_characters_take_two_columns() -> None:
    view = build_view(cluster(groups=(GroupFacts("日本語" * 20, "Stable", 5), GroupFacts("a", "Stable", 4))), None)
    lines = render(view, 100).splitlines()
    first, second = (line for line in lines if line.endswith(("5         -", "4         -")))
    assert get_display_width(first) == get_display_width(second)


# Number formats


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (7, "7"),
        (7.25, "7.2"),
        (950, "950"),
        (999.6, "1.0k"),
        (1234, "1.2k"),
        (34_000, "34k"),
        (5_600_000, "5.6M"),
        (-1234, "-1.2k"),
        (1e18, "1000P"),
    ],
)
def test_numbers_are_formatted_with_si_prefix(value: float | None, text: str) -> None:
    assert format_number(value) == text


def test_sizes_changes_and_durations_are_formatted() -> None:
    assert [format_bytes(None), format_bytes(0), format_bytes(1_500)] == ["-", "0B", "1.5kB"]
    assert [format_change(None), format_change(0.01), format_change(30), format_change(-30)] == ["-", "0", "+30", "-30"]
    assert [*map(format_duration, (None, 5, 119, 600, 8000, 200_000))] == ["-", "5s", "119s", "10m", "2h13m", "2d7h"]


def test_clipped_text_ends_with_ellipsis() -> None:
    assert clip_text("abcdef", 6) == "abcdef"
    assert clip_text("abcdefg", 6) == "abcde…"
    assert clip_text("abc", 0) == ""
