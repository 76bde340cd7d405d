"""Stored formats stay compatible: what version 0.2.0 knows never changes, and everything newer has a feature level.

`level-1.txt` lists the classes, tags and fields of version 0.2.0 and is never edited. Everything else is declared with
the decorators of `chronik.metadata.levels`.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chronik.metadata import levels, records, snapshot
from chronik.metadata.commands.base import CommandBase
from chronik.metadata.commands.base import CommandPart as PartOfCommand
from chronik.metadata.commands.brokers import BrokerStatus
from chronik.metadata.commands.envelope import Envelope, decode_command, encode_command
from chronik.metadata.commands.groups import CommitOffset, OffsetToCommit
from chronik.protocol.errors import ErrorCode, KafkaError
from tests.metadata.metadata_world import NODE, NODE_INCARNATION

LEVEL_1 = Path(__file__).with_name("level-1.txt")


def subclasses(base: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for each in base.__subclasses__():
        if each.__module__.startswith("chronik."):
            yield each
            yield from subclasses(each)


STRUCTS: list[type[msgspec.Struct]] = [
    Envelope,
    *subclasses(CommandBase),
    *subclasses(PartOfCommand),
    *subclasses(records.ImageRecord),
]
LEVEL_1_NAMES: dict[type[msgspec.Struct], str] = {
    snapshot.SnapshotHeader: "Head",
    records.ItemFailure: "Failure",
    records.ApplyResult: "Result",
}
"""The names in `level-1.txt` of classes that were renamed since."""
CLASSES = {LEVEL_1_NAMES.get(each, each.__name__): each for each in STRUCTS}
assert "Head" in CLASSES


def tag_of(name: str) -> int | None:
    tag = CLASSES[name].__struct_config__.tag
    assert not isinstance(tag, str)
    return tag


def at_level_1() -> dict[str, tuple[int | None, list[str]]]:
    """Return the tag and the fields of each class of version 0.2.0, by name."""
    found = {}
    for line in LEVEL_1.read_text().splitlines():
        name, *fields = line.split()
        tag = int(fields.pop(0).strip("[]")) if fields[0].startswith("[") else None
        found[name] = tag, fields
    return found


def test_classes_of_level_1_are_unchanged() -> None:
    known = at_level_1()
    assert len(known) > 50
    for name, (tag, fields) in known.items():
        assert name in CLASSES, f"{name} is missing, but nodes of 0.2.0 write it"
        assert tag_of(name) == tag, f"{name} has a different tag than in 0.2.0"
        now = list(CLASSES[name].__struct_fields__[: len(fields)])
        assert now == fields, f"the fields of {name} that 0.2.0 knows have changed"


def test_every_added_field_has_a_level() -> None:
    known = at_level_1()
    for name in known.keys() & CLASSES.keys():
        for field in CLASSES[name].__struct_fields__[len(known[name][1]) :]:
            level = levels.FIELD_LEVELS.get(CLASSES[name], {}).get(field)
            assert level is not None, f"{name}.{field} is new: declare its level with @added_fields"
            assert 1 < level <= levels.HIGHEST, f"{name}.{field} is unknown at level 1: it needs a higher level"


def test_every_added_class_with_tag_has_a_level() -> None:
    """Structs without a tag get their level from the field or command that contains them."""
    for name in CLASSES.keys() - at_level_1().keys():
        if tag_of(name) is not None:
            level = levels.CLASS_LEVELS.get(CLASSES[name])
            assert level is not None, f"{name} is new: declare its level with @since_level"
            assert 1 < level <= levels.HIGHEST, f"{name} is unknown at level 1: it needs a higher level"


def test_tags_are_unique() -> None:
    for base in (CommandBase, records.ImageRecord):
        tags = [tag for each in subclasses(base) if (tag := each.__struct_config__.tag) is not None]
        assert len(tags) == len(set(tags))


def test_broker_status_values_are_unchanged() -> None:
    assert [status.value for status in BrokerStatus] == ["online", "offline", "maintenance"]


def test_levels_are_declared_only_for_stored_structs() -> None:
    assert levels.CLASS_LEVELS.keys() <= set(CLASSES.values())
    assert levels.FIELD_LEVELS.keys() <= set(CLASSES.values())
    for each, added in levels.FIELD_LEVELS.items():
        name = LEVEL_1_NAMES.get(each, each.__name__)
        cls = CLASSES[name]
        fields, defaults = cls.__struct_fields__, cls.__struct_defaults__
        assert fields[len(fields) - len(added) :] == tuple(added), f"{name}: added fields must be at the end"
        for default in defaults[len(defaults) - len(added) :] if added else ():
            assert isinstance(default, tuple | int | str | bytes | None), f"{name}: the default must be comparable"


def contained_classes(cls: type[msgspec.Struct]) -> set[type]:
    """Return the classes that occur in the fields of a class."""
    found, seen = set(), list(typing.get_type_hints(cls).values())
    while seen:
        hint = seen.pop()
        seen.extend(typing.get_args(hint))
        if isinstance(hint, type) and hint in STRUCTS:
            found.add(hint)
    return found


def test_structs_that_contain_added_fields_are_declared() -> None:
    for name, cls in CLASSES.items():
        if contained_classes(cls) & levels.FIELD_LEVELS.keys() and cls is not Envelope:
            assert cls in levels.FIELD_LEVELS, (
                f"{name} contains a struct with added fields: decorate it with @added_fields()"
            )


# --- a command and fields of higher levels ---


class Part(PartOfCommand, frozen=True):
    number: int
    more: str = ""


class Sample(CommandBase, frozen=True, tag=99):
    parts: tuple[Part, ...]
    old: int = 5
    new: int = 0
    newer: tuple[int, ...] = ()


FIELDS = {Sample: {"new": 2, "newer": 3}, Part: {"more": 2}}


@pytest.fixture
def sample_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "HIGHEST", 3)
    for cls, fields in FIELDS.items():
        monkeypatch.setitem(levels.FIELD_LEVELS, cls, fields)


def encoded(command: CommandBase) -> Any:
    return msgspec.msgpack.decode(encode_command(Envelope(NODE, NODE_INCARNATION, 1, 0, command)))[-1]  # type: ignore[arg-type]


@pytest.mark.usefixtures("sample_levels")
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
def test_added_fields_are_encoded_only_with_other_than_default_values(
    command: Sample, form: list[object], level: int
) -> None:
    assert encoded(command) == form
    levels.check_command_level(command, level)
    if level > 1:
        with pytest.raises(KafkaError) as error:
            levels.check_command_level(command, level - 1)
        assert error.value.code is ErrorCode.UNSUPPORTED_VERSION
        expected = f"Sample needs chronik.version {level}, and the cluster is at {level - 1}"
        assert expected in error.value.message
        assert "chronik cluster upgrade" in error.value.message


def test_new_command_requires_its_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(levels.CLASS_LEVELS, Sample, 2)
    levels.check_command_level(Sample(()), 2)
    with pytest.raises(KafkaError, match=r"Sample needs chronik\.version 2"):
        levels.check_command_level(Sample(()), 1)


def test_undeclared_fields_are_always_encoded() -> None:
    assert encoded(Sample((Part(1),))) == [99, [[1, ""]], 5, 0, []]
    command = CommitOffset("g", (OffsetToCommit("t", 0, 1),), 1)
    envelope = Envelope(NODE, NODE_INCARNATION, 1, 0, command)
    assert decode_command(encode_command(envelope)) == envelope
