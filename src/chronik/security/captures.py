"""Capturing groups of regular expressions, matched in linear time. No I/O.

`linear_regex` decides whether a text matches. This module simulates all threads of the NFA, too, but each thread
records where its groups start and end, and the first in the expression's order wins (Pike, 1987). The result is the
same as with the backtracking engines of Java and Perl.
"""

from __future__ import annotations

from typing import NamedTuple

from chronik.patterns import Characters, Edge, Either, Group, Node, Pattern, Repeat, Sequence, parse


class Save(NamedTuple):
    """An instruction that records the position as the start (even slot) or end (odd slot) of a group."""

    slot: int


class Split(NamedTuple):
    """An instruction that continues at each of its targets, the first one preferred."""

    targets: tuple[int, ...]


Step = Characters | Edge | Save | Split


class Noted(NamedTuple):
    """A recorded position of an NFA thread, linked to the earlier ones.

    Threads that diverge share their common history, so recording a position costs the same with any number of groups.
    """

    slot: int
    position: int
    before: Notes


Notes = Noted | None


class Capturing:
    """A regular expression that must match the whole text, with access to its groups."""

    def __init__(self, expression: str) -> None:
        """Compile the expression.

        Raises:
            PatternError: The expression is invalid or too large.
        """
        self._matcher = Pattern(expression)  # rejects texts faster, and expressions that are too large
        self._steps: list[Step] = []
        self.group_count = 0
        self._emit(parse(expression))

    def groups(self, text: str) -> tuple[str, ...] | None:
        """Return the text and the part that each group matched (empty for groups that took no part), or None if the
        text does not match."""
        if not self._matcher.matches(text):
            return None
        end = len(text)
        threads = self._epsilon_closure([(0, None)], 0, end)
        for position, character in enumerate(text, 1):
            moved = [(at + 1, notes) for at, notes in threads.items() if self._accepts(at, character)]
            threads = self._epsilon_closure(moved, position, end)
        slots = _latest_positions(threads[len(self._steps)])
        start_slots = range(0, 2 * self.group_count, 2)
        return text, *(_between(text, slots.get(each), slots.get(each + 1)) for each in start_slots)

    def _accepts(self, at: int, character: str) -> bool:
        step = self._steps[at] if at < len(self._steps) else None
        return isinstance(step, Characters) and step.take(character)

    def _epsilon_closure(self, threads: list[tuple[int, Notes]], position: int, end: int) -> dict[int, Notes]:
        """Return the states reachable without consuming a character, in order of preference."""
        found: dict[int, Notes] = {}
        seen: set[int] = set()
        waiting = threads[::-1]
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

    # Compilation of the syntax tree to instructions, each of which continues at the next one

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
            self._emit_alternation(node)
        elif isinstance(node, Repeat):
            self._emit_repetition(node)
        else:
            self._steps.append(node)

    def _emit_alternation(self, node: Either) -> None:
        split = self._placeholder()
        starts, ends = [], []
        for option in node.options:
            starts.append(len(self._steps))
            self._emit(option)
            ends.append(self._placeholder())
        self._steps[split] = Split(tuple(starts))
        for end in ends:
            self._steps[end] = Split((len(self._steps),))

    def _emit_repetition(self, node: Repeat) -> None:
        for _ in range(node.least):
            self._emit(node.part)
        splits = []
        for _ in range(1 if node.most is None else node.most - node.least):
            splits.append(self._placeholder())
            self._emit(node.part)
        if node.most is None:
            self._steps.append(Split((splits[0],)))
        for split in splits:
            threads = (split + 1, len(self._steps))
            self._steps[split] = Split(threads[::-1] if node.is_lazy else threads)

    def _placeholder(self) -> int:
        self._steps.append(Split(()))
        return len(self._steps) - 1


def _latest_positions(notes: Notes) -> dict[int, int]:
    found: dict[int, int] = {}
    while notes is not None:
        found.setdefault(notes.slot, notes.position)
        notes = notes.before
    return found


def _between(text: str, begin: int | None, end: int | None) -> str:
    return "" if begin is None or end is None else text[begin:end]
