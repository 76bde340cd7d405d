"""Capturing groups of regular expressions, matched in linear time. No I/O.

`linear_regex` decides whether a text matches. This module simulates all threads of the NFA, too, but each thread
records where its groups start and end, and the first in the expression's order wins (Pike, 1987). The result is the
same as with the backtracking engines of Java and Perl.
"""

from __future__ import annotations

from typing import NamedTuple

from chronik.linear_regex import (
    Alternation,
    CapturingGroup,
    CharacterClass,
    Concatenation,
    Pattern,
    RegexNode,
    Repetition,
    TextAnchor,
    parse_regex,
)


class SavePosition(NamedTuple):
    """An instruction that records the position as the start (even slot) or end (odd slot) of a group."""

    slot: int


class SplitThreads(NamedTuple):
    """An instruction that continues at each of its targets, the first one preferred."""

    targets: tuple[int, ...]


CaptureInstruction = CharacterClass | TextAnchor | SavePosition | SplitThreads


class SavedPosition(NamedTuple):
    """A recorded position of an NFA thread, linked to the earlier ones.

    Threads that diverge share their common history, so recording a position costs the same with any number of groups.
    """

    slot: int
    position: int
    before: SavedPositions


SavedPositions = SavedPosition | None


class CapturingPattern:
    """A regular expression that must match the whole text, with access to its groups."""

    def __init__(self, expression: str) -> None:
        """Compile the expression.

        Raises:
            PatternError: The expression is invalid or too large.
        """
        self._matcher = Pattern(expression)  # rejects texts faster, and expressions that are too large
        self._steps: list[CaptureInstruction] = []
        self.group_count = 0
        self._emit(parse_regex(expression))

    def groups(self, text: str) -> tuple[str, ...] | None:
        """Return the text and the part that each group matched (empty for groups that took no part), or None if the
        text does not match.
        """
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
        return isinstance(step, CharacterClass) and step.contains(character)

    def _epsilon_closure(
        self, threads: list[tuple[int, SavedPositions]], position: int, end: int
    ) -> dict[int, SavedPositions]:
        """Return the states reachable without consuming a character, in order of preference."""
        found: dict[int, SavedPositions] = {}
        seen: set[int] = set()
        waiting = threads[::-1]
        while waiting:
            at, notes = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            step = self._steps[at] if at < len(self._steps) else None
            if isinstance(step, SplitThreads):
                waiting += [(target, notes) for target in reversed(step.targets)]
            elif isinstance(step, SavePosition):
                waiting.append((at + 1, SavedPosition(step.slot, position, notes)))
            elif isinstance(step, TextAnchor):
                if position == (end if step.is_end else 0):
                    waiting.append((at + 1, notes))
            else:
                found[at] = notes
        return found

    # Compilation of the syntax tree to instructions, each of which continues at the next one

    def _emit(self, node: RegexNode) -> None:
        if isinstance(node, Concatenation):
            for part in node.parts:
                self._emit(part)
        elif isinstance(node, CapturingGroup):
            self.group_count = max(self.group_count, node.number)
            self._steps.append(SavePosition(2 * node.number - 2))
            self._emit(node.part)
            self._steps.append(SavePosition(2 * node.number - 1))
        elif isinstance(node, Alternation):
            self._emit_alternation(node)
        elif isinstance(node, Repetition):
            self._emit_repetition(node)
        else:
            self._steps.append(node)

    def _emit_alternation(self, node: Alternation) -> None:
        split = self._placeholder()
        starts, ends = [], []
        for option in node.options:
            starts.append(len(self._steps))
            self._emit(option)
            ends.append(self._placeholder())
        self._steps[split] = SplitThreads(tuple(starts))
        for end in ends:
            self._steps[end] = SplitThreads((len(self._steps),))

    def _emit_repetition(self, node: Repetition) -> None:
        for _ in range(node.min_count):
            self._emit(node.part)
        splits = []
        for _ in range(1 if node.max_count is None else node.max_count - node.min_count):
            splits.append(self._placeholder())
            self._emit(node.part)
        if node.max_count is None:
            self._steps.append(SplitThreads((splits[0],)))
        for split in splits:
            threads = (split + 1, len(self._steps))
            self._steps[split] = SplitThreads(threads[::-1] if node.is_lazy else threads)

    def _placeholder(self) -> int:
        self._steps.append(SplitThreads(()))
        return len(self._steps) - 1


def _latest_positions(notes: SavedPositions) -> dict[int, int]:
    found: dict[int, int] = {}
    while notes is not None:
        found.setdefault(notes.slot, notes.position)
        notes = notes.before
    return found


def _between(text: str, begin: int | None, end: int | None) -> str:
    return "" if begin is None or end is None else text[begin:end]
