"""Whatever nodes of 0.2.0 read stays as it is, and what is added later waits for a level: `level-1.txt` is what they
know. It never changes. What is not in it is declared with the decorators of `chronik.metadata.levels`."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chronik.metadata import entries, levels, records
from chronik.metadata.commands.base import Base
from chronik.metadata.commands.base import Part as PartOfCommand
from chronik.metadata.commands.brokers import BrokerStatus
from chronik.metadata.commands.envelope import Envelope, decode_command, encode_command
from chronik.metadata.commands.groups import CommitOffset, OffsetToCommit
from chronik.protocol.errors import ErrorCode, KafkaError
from tests.metadata.world import LIFE, NODE

LEVEL_1 = Path(__file__).with_name("level-1.txt")


def below(base: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for each in base.__subclasses__():
        if each.__module__.startswith("chronik."):
            yield each
            yield from below(each)


KINDS: list[type[msgspec.Struct]] = [Envelope, *below(Base), *below(PartOfCommand), *below(records.Record)]
CLASSES = {each.__name__: each for each in KINDS}
assert entries.Head.__name__ in CLASSES


def tag_of(name: str) -> int | None:
    tag = CLASSES[name].__struct_config__.tag
    assert not isinstance(tag, str)
    return tag


def at_level_1() -> dict[str, tuple[int | None, list[str]]]:
    """By name: tag, and fields."""
    found = {}
    for line in LEVEL_1.read_text().splitlines():
        name, *fields = line.split()
        tag = int(fields.pop(0).strip("[]")) if fields[0].startswith("[") else None
        found[name] = tag, fields
    return found


def test_what_level_1_knows_is_as_it_was() -> None:
    known = at_level_1()
    assert len(known) > 50
    for name, (tag, fields) in known.items():
        assert name in CLASSES, f"{name} is gone, and nodes of 0.2.0 write it"
        assert tag_of(name) == tag, f"{name} has another tag than in 0.2.0"
        now = list(CLASSES[name].__struct_fields__[: len(fields)])
        assert now == fields, f"the fields of {name} that 0.2.0 knows have changed"


def test_a_field_that_was_added_has_a_level() -> None:
    known = at_level_1()
    for name in known.keys() & CLASSES.keys():
        for field in CLASSES[name].__struct_fields__[len(known[name][1]) :]:
            level = levels.FIELD_LEVELS.get(CLASSES[name], {}).get(field)
            assert level is not None, f"{name}.{field} is new: which level does it need? Say so with @added_fields"
            assert 1 < level <= levels.HIGHEST, f"{name}.{field} is not known by level 1: it needs a higher one"


def test_a_kind_that_was_added_has_a_level() -> None:
    """Parts and records without a tag come with the field or the command that has them."""
    for name in CLASSES.keys() - at_level_1().keys():
        if tag_of(name) is not None:
            level = levels.CLASS_LEVELS.get(CLASSES[name])
            assert level is not None, f"{name} is new: which level does it need? Say so with @since_level"
            assert 1 < level <= levels.HIGHEST, f"{name} is not known by level 1: it needs a higher one"


def test_a_tag_is_never_used_again() -> None:
    for base in (Base, records.Record):
        tags = [tag for each in below(base) if (tag := tag_of(each.__name__)) is not None]
        assert len(tags) == len(set(tags))


def test_words_that_level_1_knows_are_as_they_were() -> None:
    assert [status.value for status in BrokerStatus] == ["online", "offline", "maintenance"]


def test_the_tables_name_what_there_is() -> None:
    assert levels.CLASS_LEVELS.keys() <= set(CLASSES.values())
    assert levels.FIELD_LEVELS.keys() <= set(CLASSES.values())
    for each, added in levels.FIELD_LEVELS.items():
        name = each.__name__
        cls = CLASSES[name]
        fields, defaults = cls.__struct_fields__, cls.__struct_defaults__
        assert fields[len(fields) - len(added) :] == tuple(added), f"{name}: what is added stands at the end"
        for default in defaults[len(defaults) - len(added) :] if added else ():
            assert isinstance(default, tuple | int | str | bytes | None), f"{name}: a default that can be compared"


def held_by(cls: type[msgspec.Struct]) -> set[type]:
    """The classes that its fields are made of."""
    found, seen = set(), list(typing.get_type_hints(cls).values())
    while seen:
        hint = seen.pop()
        seen.extend(typing.get_args(hint))
        if isinstance(hint, type) and hint in KINDS:
            found.add(hint)
    return found


def test_what_holds_something_that_was_added_to_is_named_too() -> None:
    for name, cls in CLASSES.items():
        if held_by(cls) & levels.FIELD_LEVELS.keys() and cls is not Envelope:
            assert cls in levels.FIELD_LEVELS, f"{name} holds what was added to: decorate it with @added_fields()"


# A command and a field that came with level 2


class Part(PartOfCommand, frozen=True):
    number: int
    more: str = ""


class Sample(Base, frozen=True, tag=99):
    parts: tuple[Part, ...]
    old: int = 5
    new: int = 0
    newer: tuple[int, ...] = ()


FIELDS = {Sample: {"new": 2, "newer": 3}, Part: {"more": 2}}


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "HIGHEST", 3)
    for cls, fields in FIELDS.items():
        monkeypatch.setitem(levels.FIELD_LEVELS, cls, fields)


def encoded(command: Base) -> Any:
    return msgspec.msgpack.decode(encode_command(Envelope(NODE, LIFE, 1, 0, command)))[-1]  # type: ignore[arg-type]


@pytest.mark.usefixtures("pretended")
@pytest.mark.parametrize(
    ("command", "form", "level"),
    [
        (Sample(()), [99, [], 5], 1),
        (Sample((Part(1),), 6), [99, [[1]], 6], 1),
        (Sample((Part(1), Part(2, "x"))), [99, [[1], [2, "x"]], 5], 2),
        (Sample((), 5, 7), [99, [], 5, 7], 2),
        (Sample((), 5, 0, (8,)), [99, [], 5, 0, [8]], 3),
    ],
)
def test_what_was_added_is_written_only_where_it_says_something(
    command: Sample, form: list[object], level: int
) -> None:
    assert encoded(command) == form
    levels.refuse_above(command, level)
    if level > 1:
        with pytest.raises(KafkaError) as refused:
            levels.refuse_above(command, level - 1)
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
        told = f"Sample needs chronik.version {level}, and the cluster is at {level - 1}"
        assert told in refused.value.message
        assert "chronik cluster upgrade" in refused.value.message


def test_a_new_kind_waits_for_its_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(levels.CLASS_LEVELS, Sample, 2)
    levels.refuse_above(Sample(()), 2)
    with pytest.raises(KafkaError, match=r"Sample needs chronik\.version 2"):
        levels.refuse_above(Sample(()), 1)


def test_without_the_tables_all_is_written() -> None:
    assert encoded(Sample((Part(1),))) == [99, [[1, ""]], 5, 0, []]
    command = CommitOffset("g", (OffsetToCommit("t", 0, 1),), 1)
    envelope = Envelope(NODE, LIFE, 1, 0, command)
    assert decode_command(encode_command(envelope)) == envelope
