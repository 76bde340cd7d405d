"""What the groups of an expression match, in a time that grows with the text and not beyond. Pure.

`patterns` says whether a text matches; here all ways to match it are followed at once, too, but each remembers where
its groups began and ended, and the one that comes first in the expression's order wins (Pike, 1987): the same groups as
Java and Perl find by trying one way after the other.
"""

from __future__ import annotations

from typing import NamedTuple

from chronik.patterns import Characters, Edge, Either, Group, Node, Pattern, Repeat, Sequence, parse


class Save(NamedTuple):
    """Notes the position: of a group's beginning (even) or end."""

    slot: int


class Split(NamedTuple):
    """Goes on at each of these, the first by preference."""

    targets: tuple[int, ...]


Step = Characters | Edge | Save | Split


class Noted(NamedTuple):
    """Where a way has been, the last first: ways that part share what they have in common, so that a note costs the
    same however many groups there are."""

    slot: int
    position: int
    before: Notes


Notes = Noted | None


class Capturing:
    """An expression that has to match all of a text."""

    def __init__(self, expression: str) -> None:
        """Raises PatternError."""
        self._matcher = Pattern(expression)  # quicker to say no; and it refuses what is too large
        self._steps: list[Step] = []
        self.group_count = 0
        self._emit(parse(expression))

    def groups(self, text: str) -> tuple[str, ...] | None:
        """Returns what matched as a whole and in each group, empty for a group that has no part in it; None if the text
        does not match."""
        if not self._matcher.matches(text):
            return None
        end = len(text)
        ways = self._reached([(0, None)], 0, end)
        for position, character in enumerate(text, 1):
            moved = [(at + 1, notes) for at, notes in ways.items() if self._takes(at, character)]
            ways = self._reached(moved, position, end)
        slots = _last_of_each(ways[len(self._steps)])
        of_groups = range(0, 2 * self.group_count, 2)
        return text, *(_between(text, slots.get(each), slots.get(each + 1)) for each in of_groups)

    def _takes(self, at: int, character: str) -> bool:
        step = self._steps[at] if at < len(self._steps) else None
        return isinstance(step, Characters) and step.take(character)

    def _reached(self, ways: list[tuple[int, Notes]], position: int, end: int) -> dict[int, Notes]:
        """Returns where one gets from there without taking a character, the preferred way first."""
        found: dict[int, Notes] = {}
        seen: set[int] = set()
        waiting = ways[::-1]
        while waiting:
            at, notes = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            step = self._steps[at] if at < len(self._steps) else None
            if isinstance(step, Split):
                waiting += [(target, notes) for target in reversed(step.targets)]
            elif isinstance(step, Save):
                waiting.append((at + 1, Noted(step.slot, position, notes)))
            elif isinstance(step, Edge):
                if position == (end if step.is_end else 0):
                    waiting.append((at + 1, notes))
            else:
                found[at] = notes
        return found

    # From an expression's parts to steps, of which each goes on at the next one

    def _emit(self, node: Node) -> None:
        if isinstance(node, Sequence):
            for part in node.parts:
                self._emit(part)
        elif isinstance(node, Group):
            self.group_count = max(self.group_count, node.number)
            self._steps.append(Save(2 * node.number - 2))
            self._emit(node.part)
            self._steps.append(Save(2 * node.number - 1))
        elif isinstance(node, Either):
            self._emit_either(node)
        elif isinstance(node, Repeat):
            self._emit_repeat(node)
        else:
            self._steps.append(node)

    def _emit_either(self, node: Either) -> None:
        split = self._placeholder()
        begins, ends = [], []
        for option in node.options:
            begins.append(len(self._steps))
            self._emit(option)
            ends.append(self._placeholder())
        self._steps[split] = Split(tuple(begins))
        for end in ends:
            self._steps[end] = Split((len(self._steps),))

    def _emit_repeat(self, node: Repeat) -> None:
        for _ in range(node.least):
            self._emit(node.part)
        splits = []
        for _ in range(1 if node.most is None else node.most - node.least):
            splits.append(self._placeholder())
            self._emit(node.part)
        if node.most is None:
            self._steps.append(Split((splits[0],)))
        for split in splits:
            ways = (split + 1, len(self._steps))
            self._steps[split] = Split(ways[::-1] if node.is_lazy else ways)

    def _placeholder(self) -> int:
        self._steps.append(Split(()))
        return len(self._steps) - 1


def _last_of_each(notes: Notes) -> dict[int, int]:
    found: dict[int, int] = {}
    while notes is not None:
        found.setdefault(notes.slot, notes.position)
        notes = notes.before
    return found


def _between(text: str, begin: int | None, end: int | None) -> str:
    return "" if begin is None or end is None else text[begin:end]
