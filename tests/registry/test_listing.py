"""Pages, sorted lists and snapshots of the registry's subjects."""

from __future__ import annotations

import asyncio
import random

import pytest

from chronik.metadata import schemas
from chronik.registry.listing import (
    ITEMS_SORTED_AT_ONCE,
    SLICE_SECONDS,
    ListSlices,
    select_page,
    sort_in_slices,
)
from tests.metadata.registry_world import RegistryWorld


@pytest.mark.parametrize(
    ("offset", "limit", "expected"),
    [(0, -1, "abcd"), (1, 2, "bc"), (-5, 1, "a"), (4, 1, ""), (0, 0, "abcd"), (0, 9, "abcd"), (3, 2**31 - 1, "d")],
)
def test_page_is_selected_by_offset_and_limit(offset: int, limit: int, expected: str) -> None:
    assert select_page(list("abcd"), offset, limit) == list(expected)


def test_limit_above_the_maximum_means_the_maximum() -> None:
    assert select_page(list("abcd"), 1, 3, limit_max=2) == ["b", "c"]


@pytest.mark.parametrize("count", [0, 1, ITEMS_SORTED_AT_ONCE, 2 * ITEMS_SORTED_AT_ONCE + 1])
def test_items_are_sorted_in_slices(count: int) -> None:
    names = [f"{number:06}" for number in range(count)]
    random.Random(1).shuffle(names)
    assert asyncio.run(sort_in_slices(names)) == sorted(names)


def test_list_yields_after_its_slice() -> None:
    async def scenario() -> None:
        now = 0.0
        slices = ListSlices(clock=lambda: now)
        assert not await yields(slices)
        now = SLICE_SECONDS + 0.001
        assert await yields(slices)
        now += SLICE_SECONDS / 2
        assert not await yields(slices)

    async def yields(slices: ListSlices) -> bool:
        paused = asyncio.ensure_future(slices.pause_if_due())
        await asyncio.sleep(0)
        is_paused = not paused.done()
        await paused
        return is_paused

    asyncio.run(scenario())


@pytest.mark.parametrize("looked_up_max", [0, 100])
def test_subjects_are_iterated_as_of_the_call(looked_up_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "SUBJECTS_LOOKED_UP_MAX", looked_up_max)
    world = RegistryWorld(level=6)
    for name in ("b", "a", ":.lab:a", ":.lab:b", "z"):
        world.register_schema(name, "text")
    before = world.table.iter_subjects()
    without = world.table.iter_subjects(without=":.")
    lab = world.table.iter_subjects(":.lab:", without=":.lab:b")
    nothing = world.table.iter_subjects("b", without="a")
    world.register_schema("c", "text")
    world.register_schema("a", "other")
    assert [(each.name, len(each.versions)) for each in before] == [
        (":.lab:a", 1), (":.lab:b", 1), ("a", 1), ("b", 1), ("z", 1)
    ]  # fmt: skip
    assert [each.name for each in without] == ["a", "b", "z"]
    assert [each.name for each in lab] == [":.lab:a"]
    assert [each.name for each in nothing] == ["b"]
