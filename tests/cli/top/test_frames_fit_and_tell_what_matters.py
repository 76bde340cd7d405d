"""Two looks in, a frame out: rates, order, and never more columns or lines than there are."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from chronik.cli.top.figures import clipped, short, signed, size, span, width_of
from chronik.cli.top.frame import Sorting, Style, frame
from chronik.cli.top.view import View, view_of
from chronik.cli.watching.facts import ClusterFacts, GroupFacts, Unseen
from tests.cli.watching.healthy import cluster, partition, with_node


def later(facts: ClusterFacts, seconds: float = 2.0, **changes: object) -> ClusterFacts:
    return replace(facts, monotonic_s=facts.monotonic_s + seconds, **changes)


def shown(view: View, width: int = 160, height: int | None = None, sorting: Sorting = Sorting.TRAFFIC) -> str:
    return "\n".join(line.text for line in frame(view, width, height, sorting=sorting))


# Rates


def test_rates_are_what_has_changed_by_the_time_between() -> None:
    before = with_node(cluster(groups=(GroupFacts("g", "Stable", 100),)), 1, requests=100, bytes_in=0, log_bytes=5000)
    now = with_node(
        later(
            before,
            partitions=tuple(replace(each, end=20, bytes=3000) for each in before.partitions),
            groups=(GroupFacts("g", "Stable", 40),),
        ),
        1,
        requests=150,
        bytes_in=4000,
        log_bytes=9000,
    )
    view = view_of(now, before)
    assert view.seconds == 2.0
    first = view.nodes[0]
    assert (first.requests_s, first.in_bytes_s, first.out_bytes_s, first.written_bytes_s) == (25, 2000, None, 2000)
    [orders] = view.topics
    assert (orders.records_s, orders.written_bytes_s, orders.bytes) == (30, 6000, 18_000)
    assert view.groups[0].lag_change_s == -30
    assert (view.records_s, view.written_bytes_s, view.requests_s) == (30, 6000, 25)


def test_one_look_tells_no_rates() -> None:
    view = view_of(cluster(), None)
    assert (view.records_s, view.requests_s, view.seconds) == (None, None, None)
    assert "- records/s" in shown(view)


def test_a_counter_that_began_anew_tells_no_rate() -> None:
    before = with_node(cluster(), 1, requests=100)
    assert view_of(with_node(later(before), 1, requests=7), before).nodes[0].requests_s is None


def test_looks_at_the_same_moment_tell_no_rate() -> None:
    before = cluster()
    assert view_of(later(before, 0.0), before).records_s is None


# Order


def busy() -> View:
    before = cluster(
        partitions=(
            partition("large", 0, 1, end=5, bytes=9_000_000),
            partition("busy", 0, 2, end=0, bytes=10),
            partition("idle", 0, 3, end=0, bytes=0),
        ),
        groups=(GroupFacts("near", "Stable", 1), GroupFacts("far", "Empty", 5000), GroupFacts("unknown", "Stable")),
    )
    large, busy, idle = before.partitions
    return view_of(later(before, partitions=(large, replace(busy, end=100), idle)), before)


def order(text: str, *words: str) -> list[str]:
    return sorted(words, key=lambda word: text.index(f"\n{word} "))


def test_topics_stand_by_traffic_size_or_name_and_groups_by_lag() -> None:
    view = busy()
    assert order(shown(view), "large", "busy", "idle") == ["busy", "large", "idle"]
    assert order(shown(view, sorting=Sorting.SIZE), "large", "busy", "idle") == ["large", "busy", "idle"]
    assert order(shown(view, sorting=Sorting.NAME), "large", "busy", "idle") == ["busy", "idle", "large"]
    assert order(shown(view), "near", "far", "unknown") == ["far", "near", "unknown"]
    assert Sorting.TRAFFIC.next.next.next is Sorting.TRAFFIC


def test_topics_of_the_cluster_itself_are_shown_when_something_is_wrong_with_them() -> None:
    internal = partition("__consumer_offsets", 0, 1, is_internal=True)
    facts = cluster(partitions=(internal,))
    assert "__consumer_offsets" not in shown(view_of(facts, None))
    assert "__consumer_offsets" in shown(view_of(replace(facts, partitions=(replace(internal, isr=(1,)),)), None))


# What matters


def test_nodes_verdict_and_figures_are_there() -> None:
    text = shown(view_of(cluster(), None))
    assert "3 of 3 agree" in text
    assert "node 1 leads, term 3" in text
    assert [line.split()[:3] for line in text.splitlines() if line.startswith("   ")] == [
        ["1", "online", "leader"],
        ["2", "online", "follower"],
        ["3", "online", "follower"],
    ]
    assert "abababab " in text


def test_what_needs_attention_stands_before_the_rest() -> None:
    view = view_of(with_node(cluster(same_state=False), 2, status="down", silence="Connection refused"), None)
    lines = frame(view, 120, 40)
    assert lines[0].style is Style.ERROR
    assert "DIFFERENT STATES" in lines[0].text
    heading = next(number for number, line in enumerate(lines) if line.text.startswith("NEEDS ATTENTION"))
    nodes = next(number for number, line in enumerate(lines) if line.text.startswith("NODE "))
    assert heading < nodes
    assert "node 2 does not answer" in lines[heading + 1].text
    assert lines[heading + 1].style is Style.ERROR


def test_what_was_not_seen_is_told_with_the_reason() -> None:
    text = shown(view_of(cluster(unseen=(Unseen("the pages at 127.0.0.1:8083", "it wants a token"),)), None))
    assert "NOT SEEN\n  the pages at 127.0.0.1:8083: it wants a token" in text


def test_columns_of_which_nothing_is_known_are_left_out() -> None:
    text = shown(view_of(cluster(), None))
    assert "IN/s" not in text
    assert "IN/s" in shown(busy_with_bytes())


def busy_with_bytes() -> View:
    before = with_node(cluster(), 1, bytes_in=0)
    return view_of(with_node(later(before), 1, bytes_in=1000), before)


# Fitting


def crowded() -> View:
    names = [f"topic-{number:03d}" for number in range(100)]
    return view_of(
        cluster(
            partitions=tuple(partition(name, 0, 1 + number % 3) for number, name in enumerate(names)),
            groups=tuple(GroupFacts(f"group-{number:03d}", "Stable", number) for number in range(100)),
            transactions=(),
            unseen=tuple(Unseen(f"thing {number}", "why " * 30) for number in range(30)),
            same_state=False,
        ),
        None,
    )


@pytest.mark.parametrize("height", [*range(1, 12), 24, 50, 400])
@pytest.mark.parametrize("width", [1, 10, 40, 80, 200])
def test_a_frame_is_as_high_as_it_may_be_and_never_wider(width: int, height: int) -> None:
    for view in (crowded(), view_of(cluster(), None)):
        lines = frame(view, width, height, footer="q quits")
        assert len(lines) == height
        assert all(width_of(line.text) <= width for line in lines)
        assert "\n" not in "".join(line.text for line in lines)


def test_what_is_left_out_is_counted() -> None:
    text = shown(crowded(), 120, 40)
    assert " more" in text
    assert "topic-000" in text
    assert "group-099" in text, "the one that lags most"
    unlimited = shown(crowded())
    assert "… 81 more" in unlimited, "nobody reads hundreds of lines"


def test_both_tables_have_room_in_a_small_window() -> None:
    text = shown(crowded(), 80, 24)
    assert "TOPIC" in text
    assert "GROUP" in text


def test_columns_that_can_be_spared_go_first() -> None:
    view = view_of(cluster(), None)
    wide, narrow = shown(view, 200), shown(view, 60)
    assert "VERSION" in wide
    assert "VERSION" not in narrow
    assert "STATUS" in narrow
    assert "…" not in narrow.split("NODE ")[1].splitlines()[0]


def test_names_cannot_take_over_the_screen() -> None:
    view = view_of(cluster(groups=(GroupFacts("\x1b[2Jevil\n", "Stable", 5),)), None)
    assert "\x1b" not in shown(view)
    assert "\\x1b[2Jevil\\n" in shown(view)


def test_wide_letters_take_two_columns() -> None:
    view = view_of(cluster(groups=(GroupFacts("日本語" * 20, "Stable", 5), GroupFacts("a", "Stable", 4))), None)
    lines = shown(view, 100).splitlines()
    first, second = (line for line in lines if line.endswith(("5         -", "4         -")))
    assert width_of(first) == width_of(second)


# Figures


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
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert short(value) == text


def test_sizes_changes_and_times_are_short() -> None:
    assert [size(None), size(0), size(1_500)] == ["-", "0B", "1.5kB"]
    assert [signed(None), signed(0.01), signed(30), signed(-30)] == ["-", "0", "+30", "-30"]
    assert [*map(span, (None, 5, 119, 600, 8000, 200_000))] == ["-", "5s", "119s", "10m", "2h13m", "2d7h"]


def test_what_is_cut_says_so() -> None:
    assert clipped("abcdef", 6) == "abcdef"
    assert clipped("abcdefg", 6) == "abcde…"
    assert clipped("abc", 0) == ""
