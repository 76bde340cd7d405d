"""Regular expressions that strangers send, matched in a time that grows with the text and not beyond.

Python's own go back over a text again and again: `(a+)+b` on thirty letters takes minutes, in which nobody else has a
turn. Here, as in RE2, whose syntax this is, all ways to match a text are followed at once, character by character
(Thompson, 1968), and where they lead is remembered. There are no references back and no looks around, as in RE2; left
out are also `\\b`, `\\p{…}`, `[[:alpha:]]` and flags other than `i` and `s`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Final, NamedTuple

from chronik.errors import ChronikError

CHARACTERS_MAX: Final = 1_000
PARTS_MAX: Final = 2_000
"""Parts of an expression with its repetitions written out. Each looks at each character of a text, at worst."""
DEPTH_MAX: Final = 50
REPEATED_MAX: Final = 1_000
"""As in RE2."""
REMEMBERED_MAX: Final = 2_000
LOOKS_PER_TURN: Final = 10_000
"""After so many looks of parts at characters, whoever waits has a turn: some ms."""

_DIGITS: Final = (("0", "9"),)
_WORD: Final = (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z"))
_SPACE: Final = (("\t", "\n"), ("\f", "\r"), (" ", " "))
_CLASSES: Final = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_CONTROLS: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_LAST: Final = "\U0010ffff"

Ranges = tuple[tuple[str, str], ...]
States = frozenset[int]


class PatternError(ChronikError):
    """The expression cannot be understood, or is too large."""


class Characters(NamedTuple):
    """One character of these, or with `negated` one of all others."""

    ranges: Ranges
    negated: bool = False
    any_case: bool = False

    def take(self, character: str) -> bool:
        cases = (character, character.lower(), character.upper()) if self.any_case else (character,)
        return any(low <= case <= high for low, high in self.ranges for case in cases) != self.negated


class Sequence(NamedTuple):
    parts: tuple[Node, ...]


class Either(NamedTuple):
    options: tuple[Node, ...]


class Repeat(NamedTuple):
    part: Node
    least: int
    most: int | None
    is_lazy: bool = False


class Group(NamedTuple):
    """What it matches can be asked for, by those who want to know."""

    part: Node
    number: int


class Edge(NamedTuple):
    """The beginning of the text, or its end."""

    is_end: bool


Node = Characters | Sequence | Either | Repeat | Group | Edge


class Fork(NamedTuple):
    """A step that takes no character: it goes on at each of these."""

    targets: tuple[int, ...]


Step = Characters | Edge | Fork


class Pattern:
    """An expression that has to match all of a text."""

    def __init__(self, expression: str) -> None:
        """Raises PatternError."""
        if len(expression) > CHARACTERS_MAX:
            raise PatternError(f"an expression of more than {CHARACTERS_MAX} characters")
        self._steps: list[Step] = []
        self._parts = 0
        self._emit(_Parser(expression).parse())
        self._end = len(self._steps)
        self._first = self._reached([0], at_start=True)
        self._remembered: dict[tuple[States, str], States] = {}

    def matches(self, text: str) -> bool:
        steps = self.match_in_steps(text)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return bool(end.value)

    def match_in_steps(self, text: str) -> Generator[None, None, bool]:
        """Returns whether it matches, and yields now and then, where it may be interrupted."""
        states = self._first
        turn = max(LOOKS_PER_TURN // (self._end + 1), 1)
        for count, character in enumerate(text, 1):
            states = self._moved(states, character)
            if not states:
                return False
            if count % turn == 0:
                yield
        return self._end in self._reached(states, at_start=not text, at_end=True)

    def _moved(self, states: States, character: str) -> States:
        moved = self._remembered.get((states, character))
        if moved is None:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            moved = self._reached(state + 1 for state in states if self._takes(state, character))
            self._remembered[states, character] = moved
        return moved

    def _takes(self, state: int, character: str) -> bool:
        step = self._steps[state] if state < self._end else None
        return isinstance(step, Characters) and step.take(character)

    def _reached(self, states: Iterable[int], *, at_start: bool = False, at_end: bool = False) -> States:
        """Returns where one gets from there without taking a character. An end that is not reached yet stays."""
        found, waiting = set[int](), list(states)
        while waiting:
            state = waiting.pop()
            if state in found:
                continue
            found.add(state)
            step = self._steps[state] if state < self._end else None
            if isinstance(step, Fork):
                waiting += step.targets
            elif isinstance(step, Edge) and (at_end if step.is_end else at_start):
                waiting.append(state + 1)
        return frozenset(found)

    # From an expression's parts to steps, of which each goes on at the next one

    def _emit(self, node: Node) -> None:
        while isinstance(node, Group):
            node = node.part
        self._parts += 1  # also those that are empty: there may be a million million of them
        if self._parts > PARTS_MAX:
            raise PatternError(f"an expression of more than {PARTS_MAX} parts")
        if isinstance(node, Sequence):
            for part in node.parts:
                self._emit(part)
        elif isinstance(node, Either):
            self._emit_either(node)
        elif isinstance(node, Repeat):
            self._emit_repeat(node)
        else:
            self._steps.append(node)

    def _emit_either(self, node: Either) -> None:
        fork = self._placeholder()
        begins, ends = [], []
        for option in node.options:
            begins.append(len(self._steps))
            self._emit(option)
            ends.append(self._placeholder())
        self._steps[fork] = Fork(tuple(begins))
        for end in ends:
            self._steps[end] = Fork((len(self._steps),))

    def _emit_repeat(self, node: Repeat) -> None:
        for _ in range(node.least):
            self._emit(node.part)
        if node.most is None:
            fork = self._placeholder()
            self._emit(node.part)
            self._steps.append(Fork((fork,)))
            self._steps[fork] = Fork((fork + 1, len(self._steps)))
            return
        forks = []
        for _ in range(node.most - node.least):
            forks.append(self._placeholder())
            self._emit(node.part)
        for fork in forks:
            self._steps[fork] = Fork((fork + 1, len(self._steps)))

    def _placeholder(self) -> int:
        self._steps.append(Fork(()))
        return len(self._steps) - 1


class _Parser:
    def __init__(self, expression: str) -> None:
        self._text = expression
        self._position = 0
        self._depth = 0
        self._groups = 0
        self._any_case = self._dot_takes_lines = False

    def parse(self) -> Node:
        node = self._either()
        if self._position < len(self._text):
            raise PatternError("a closing bracket that none has opened")
        return node

    def _either(self) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise PatternError(f"more than {DEPTH_MAX} brackets within each other")
        flags = self._any_case, self._dot_takes_lines
        options = [self._sequence()]
        while self._next_is("|"):
            options.append(self._sequence())
        self._any_case, self._dot_takes_lines = flags
        self._depth -= 1
        return options[0] if len(options) == 1 else Either(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._one()))
        return Sequence(tuple(parts))

    def _one(self) -> Node:
        character = self._take()
        if character == "(":
            return self._group()
        if character == "[":
            return self._class()
        if character == "\\":
            return self._escape()
        if character == ".":
            return Characters((), negated=True) if self._dot_takes_lines else self._not_lines()
        if character in "^$":
            return Edge(character == "$")
        if character in "*+?":
            raise PatternError(f"nothing to repeat before {character!r}")
        return self._literal(character)

    def _repeated(self, node: Node) -> Node:
        counts = self._counts()
        if counts is None:
            return node
        is_lazy = self._next_is("?")
        if self._counts() is not None:
            raise PatternError("a repetition of a repetition")
        return Repeat(node, *counts, is_lazy)

    def _counts(self) -> tuple[int, int | None] | None:
        for sign, counts in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._next_is(sign):
                return counts
        return self._braces() if self._peek() == "{" else None

    def _braces(self) -> tuple[int, int | None] | None:
        """Returns None for a brace that stands for itself, which it does where no counts are in it."""
        inside, brace, _ = self._text[self._position + 1 :].partition("}")
        low, comma, high = inside.partition(",")
        if not brace or not _is_number(low) or (high and not _is_number(high)):
            return None
        self._position += len(inside) + 2
        least = int(low)
        most = int(high) if high else None if comma else least
        if max(least, most or 0) > REPEATED_MAX or (most is not None and most < least):
            raise PatternError(f"a repetition of {{{inside}}}")
        return least, most

    def _group(self) -> Node:
        number = self._groups + 1
        if self._next_is("?"):
            if self._next_is("P<") or self._next_is("<"):
                name, closed, _ = self._text[self._position :].partition(">")
                if not closed or not name.isidentifier():
                    raise PatternError("a group whose name is wrong")
                self._position += len(name) + 1
            elif self._flags():
                return Sequence(())
            else:
                number = 0
        self._groups = max(self._groups, number)
        node = self._either()
        if not self._next_is(")"):
            raise PatternError("a bracket that is not closed")
        return Group(node, number) if number else node

    def _flags(self) -> bool:
        """Reads `i)` or `i:` or `:`, and says whether the group ends with it: then they hold for what follows."""
        while (character := self._take()) not in ("", ":", ")"):
            if character == "i":
                self._any_case = True
            elif character == "s":
                self._dot_takes_lines = True
            else:
                raise PatternError(f"an unknown flag: {character!r}")
        if not character:
            raise PatternError("a bracket that is not closed")
        return character == ")"

    def _class(self) -> Node:
        negated = self._next_is("^")
        ranges: list[tuple[str, str]] = []
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            ranges += self._class_part()
        self._take()
        return Characters(tuple(ranges), negated, self._any_case)

    def _class_part(self) -> Ranges:
        low = self._take()
        if not low or (low == "[" and self._peek() == ":"):
            raise PatternError("a class of characters that is not closed, or not known")
        if low == "\\":
            escaped = self._escape()
            if escaped.negated or len(escaped.ranges) != 1 or escaped.ranges[0][0] != escaped.ranges[0][1]:
                return tuple(_complement(escaped.ranges)) if escaped.negated else escaped.ranges
            low = escaped.ranges[0][0]
        if self._peek() != "-" or self._text[self._position + 1 : self._position + 2] in ("", "]"):
            return ((low, low),)
        self._take()
        high = self._take()
        if high == "\\":
            high = self._escape().ranges[0][0]
        if high < low:
            raise PatternError(f"a range from {low!r} to {high!r}")
        return ((low, high),)

    def _escape(self) -> Characters:
        character = self._take()
        if character.lower() in _CLASSES and character:
            return Characters(_CLASSES[character.lower()], negated=character.isupper())
        if character in _CONTROLS:
            return self._literal(_CONTROLS[character])
        if not character or character.isalnum():
            raise PatternError(f"an unknown escape: \\{character}")
        return self._literal(character)

    def _literal(self, character: str) -> Characters:
        return Characters(((character, character),), any_case=self._any_case)

    def _not_lines(self) -> Characters:
        return Characters((("\n", "\n"),), negated=True)

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _take(self) -> str:
        character = self._peek()
        self._position += len(character)
        return character

    def _next_is(self, text: str) -> bool:
        if not self._text.startswith(text, self._position):
            return False
        self._position += len(text)
        return True


def parse(expression: str) -> Node:
    """Raises PatternError."""
    return _Parser(expression).parse()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


def _complement(ranges: Ranges) -> Iterator[tuple[str, str]]:
    """Yields what is between these ranges, which are in order."""
    low = "\0"
    for first, last in ranges:
        if low < first:
            yield low, chr(ord(first) - 1)
        low = chr(ord(last) + 1)
    yield low, _LAST
