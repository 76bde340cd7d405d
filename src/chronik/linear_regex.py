r"""Regular expressions from clients, matched in time linear in the length of the text.

Python's `re` backtracks: `(a+)+b` on thirty letters takes minutes, in which the event loop serves no other client.
This engine simulates the NFA (Thompson, 1968) and caches its transitions. The syntax is RE2's, so there are no
back-references and no lookaround. It also lacks `\\b`, `\\p{…}`, `[[:alpha:]]` and flags other than `i` and `s`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Final, NamedTuple

from chronik.errors import ChronikError

EXPRESSION_CHARACTERS_MAX: Final = 1_000
EXPRESSION_NODES_MAX: Final = 2_000
"""Nodes of an expression after expanding its repetitions. In the worst case, each examines every character."""
DEPTH_MAX: Final = 50
REPETITIONS_MAX: Final = 1_000
"""Maximum count in a repetition such as `a{1000}`, as in RE2."""
CACHED_TRANSITIONS_MAX: Final = 2_000
"""Cached transitions of one pattern."""
COMPARISONS_PER_STEP: Final = 10_000
"""Examined characters after which `match_in_steps` yields: a few milliseconds."""

_DIGITS: Final = (("0", "9"),)
_WORD: Final = (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z"))
_SPACE: Final = (("\t", "\n"), ("\f", "\r"), (" ", " "))
_CLASSES: Final = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_CONTROLS: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_LAST: Final = "\U0010ffff"

CharacterRanges = tuple[tuple[str, str], ...]
NfaStates = frozenset[int]


class PatternError(ChronikError):
    """The regular expression is invalid or too large."""


class CharacterClass(NamedTuple):
    """A character class: one character within the ranges or, if negated, outside of them."""

    ranges: CharacterRanges
    negated: bool = False
    ignore_case: bool = False

    def contains(self, character: str) -> bool:
        """Return whether the class contains the character."""
        cases = (character, character.lower(), character.upper()) if self.ignore_case else (character,)
        return any(low <= case <= high for low, high in self.ranges for case in cases) != self.negated


class Concatenation(NamedTuple):
    """A concatenation of nodes."""

    parts: tuple[RegexNode, ...]


class Alternation(NamedTuple):
    """An alternation of nodes (`a|b`)."""

    options: tuple[RegexNode, ...]


class Repetition(NamedTuple):
    """A repetition of a node (`a*`, `a{2,5}`)."""

    part: RegexNode
    min_count: int
    max_count: int | None
    is_lazy: bool = False


class CapturingGroup(NamedTuple):
    """A capturing group."""

    part: RegexNode
    number: int


class TextAnchor(NamedTuple):
    """An anchor at the start or the end of the text (`^` or `$`)."""

    is_end: bool


RegexNode = CharacterClass | Concatenation | Alternation | Repetition | CapturingGroup | TextAnchor


class Branch(NamedTuple):
    """An instruction that consumes no character and continues at each of its targets."""

    targets: tuple[int, ...]


Instruction = CharacterClass | TextAnchor | Branch


class Pattern:
    """A compiled regular expression that must match the whole text."""

    def __init__(self, expression: str) -> None:
        """Compile the expression.

        Raises:
            PatternError: The expression is invalid or too large.
        """
        if len(expression) > EXPRESSION_CHARACTERS_MAX:
            raise PatternError(f"the expression has more than {EXPRESSION_CHARACTERS_MAX} characters")
        self._steps: list[Instruction] = []
        self._parts = 0
        self._emit(_Parser(expression).parse())
        self._end = len(self._steps)
        self._first = self._epsilon_closure([0], at_start=True)
        self._transition_cache: dict[tuple[NfaStates, str], NfaStates] = {}

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches the whole text."""
        steps = self.match_in_steps(text)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return bool(end.value)

    def match_in_steps(self, text: str) -> Generator[None, None, bool]:
        """Return whether the pattern matches the whole text, and yield regularly so that other work can run."""
        states = self._first
        yield_interval = max(COMPARISONS_PER_STEP // (self._end + 1), 1)
        for count, character in enumerate(text, 1):
            states = self._next_states(states, character)
            if not states:
                return False
            if count % yield_interval == 0:
                yield
        return self._end in self._epsilon_closure(states, at_start=not text, at_end=True)

    def _next_states(self, states: NfaStates, character: str) -> NfaStates:
        moved = self._transition_cache.get((states, character))
        if moved is None:
            if len(self._transition_cache) >= CACHED_TRANSITIONS_MAX:
                self._transition_cache.clear()
            moved = self._epsilon_closure(state + 1 for state in states if self._accepts(state, character))
            self._transition_cache[states, character] = moved
        return moved

    def _accepts(self, state: int, character: str) -> bool:
        step = self._steps[state] if state < self._end else None
        return isinstance(step, CharacterClass) and step.contains(character)

    def _epsilon_closure(self, states: Iterable[int], *, at_start: bool = False, at_end: bool = False) -> NfaStates:
        """Return the states that are reachable without consuming a character. An unmet end anchor stays in the set."""
        found, waiting = set[int](), list(states)
        while waiting:
            state = waiting.pop()
            if state in found:
                continue
            found.add(state)
            step = self._steps[state] if state < self._end else None
            if isinstance(step, Branch):
                waiting += step.targets
            elif isinstance(step, TextAnchor) and (at_end if step.is_end else at_start):
                waiting.append(state + 1)
        return frozenset(found)

    # Compilation of the syntax tree to instructions, each of which continues at the next one

    def _emit(self, node: RegexNode) -> None:
        while isinstance(node, CapturingGroup):
            node = node.part
        self._parts += 1  # empty nodes count, too: nested repetitions can produce trillions of them
        if self._parts > EXPRESSION_NODES_MAX:
            raise PatternError(f"the expression has more than {EXPRESSION_NODES_MAX} parts")
        if isinstance(node, Concatenation):
            for part in node.parts:
                self._emit(part)
        elif isinstance(node, Alternation):
            self._emit_alternation(node)
        elif isinstance(node, Repetition):
            self._emit_repetition(node)
        else:
            self._steps.append(node)

    def _emit_alternation(self, node: Alternation) -> None:
        fork = self._placeholder()
        starts, ends = [], []
        for option in node.options:
            starts.append(len(self._steps))
            self._emit(option)
            ends.append(self._placeholder())
        self._steps[fork] = Branch(tuple(starts))
        for end in ends:
            self._steps[end] = Branch((len(self._steps),))

    def _emit_repetition(self, node: Repetition) -> None:
        for _ in range(node.min_count):
            self._emit(node.part)
        if node.max_count is None:
            fork = self._placeholder()
            self._emit(node.part)
            self._steps.append(Branch((fork,)))
            self._steps[fork] = Branch((fork + 1, len(self._steps)))
            return
        forks = []
        for _ in range(node.max_count - node.min_count):
            forks.append(self._placeholder())
            self._emit(node.part)
        for fork in forks:
            self._steps[fork] = Branch((fork + 1, len(self._steps)))

    def _placeholder(self) -> int:
        self._steps.append(Branch(()))
        return len(self._steps) - 1


class _Parser:
    """A recursive-descent parser of regular expressions."""

    def __init__(self, expression: str) -> None:
        self._text = expression
        self._position = 0
        self._depth = 0
        self._groups = 0
        self._ignore_case = self._dot_matches_newline = False

    def parse(self) -> RegexNode:
        node = self._parse_alternation()
        if self._position < len(self._text):
            raise PatternError("unbalanced ')'")
        return node

    def _parse_alternation(self) -> RegexNode:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise PatternError(f"more than {DEPTH_MAX} nested groups")
        flags = self._ignore_case, self._dot_matches_newline
        options = [self._parse_sequence()]
        while self._next_is("|"):
            options.append(self._parse_sequence())
        self._ignore_case, self._dot_matches_newline = flags
        self._depth -= 1
        return options[0] if len(options) == 1 else Alternation(tuple(options))

    def _parse_sequence(self) -> RegexNode:
        parts: list[RegexNode] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._parse_repetition(self._parse_atom()))
        return Concatenation(tuple(parts))

    def _parse_atom(self) -> RegexNode:
        character = self._take()
        if character == "(":
            return self._parse_group()
        if character == "[":
            return self._parse_class()
        if character == "\\":
            return self._parse_escape()
        if character == ".":
            return CharacterClass((), negated=True) if self._dot_matches_newline else self._any_except_newline()
        if character in "^$":
            return TextAnchor(character == "$")
        if character in "*+?":
            raise PatternError(f"nothing to repeat before {character!r}")
        return self._literal(character)

    def _parse_repetition(self, node: RegexNode) -> RegexNode:
        counts = self._parse_counts()
        if counts is None:
            return node
        is_lazy = self._next_is("?")
        if self._parse_counts() is not None:
            raise PatternError("a repetition is repeated")
        return Repetition(node, *counts, is_lazy)

    def _parse_counts(self) -> tuple[int, int | None] | None:
        for sign, counts in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._next_is(sign):
                return counts
        return self._parse_braces() if self._peek() == "{" else None

    def _parse_braces(self) -> tuple[int, int | None] | None:
        """Parse `{n}`, `{n,}` or `{n,m}`; return None for a brace that is a literal character."""
        inside, brace, _ = self._text[self._position + 1 :].partition("}")
        low, comma, high = inside.partition(",")
        if not brace or not _is_number(low) or (high and not _is_number(high)):
            return None
        self._position += len(inside) + 2
        least = int(low)
        most = int(high) if high else None if comma else least
        if max(least, most or 0) > REPETITIONS_MAX or (most is not None and most < least):
            raise PatternError(f"invalid repetition {{{inside}}}")
        return least, most

    def _parse_group(self) -> RegexNode:
        number = self._groups + 1
        if self._next_is("?"):
            if self._next_is("P<") or self._next_is("<"):
                name, closed, _ = self._text[self._position :].partition(">")
                if not closed or not name.isidentifier():
                    raise PatternError("invalid group name")
                self._position += len(name) + 1
            elif self._parse_flags():
                return Concatenation(())
            else:
                number = 0
        self._groups = max(self._groups, number)
        node = self._parse_alternation()
        if not self._next_is(")"):
            raise PatternError("missing ')'")
        return CapturingGroup(node, number) if number else node

    def _parse_flags(self) -> bool:
        """Parse `i)`, `i:` or `:`, and return whether it ends with `)`: the flags then apply to what follows."""
        while (character := self._take()) not in ("", ":", ")"):
            if character == "i":
                self._ignore_case = True
            elif character == "s":
                self._dot_matches_newline = True
            else:
                raise PatternError(f"unknown flag {character!r}")
        if not character:
            raise PatternError("missing ')'")
        return character == ")"

    def _parse_class(self) -> RegexNode:
        negated = self._next_is("^")
        ranges: list[tuple[str, str]] = []
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            ranges += self._parse_class_part()
        self._take()
        return CharacterClass(tuple(ranges), negated, self._ignore_case)

    def _parse_class_part(self) -> CharacterRanges:
        low = self._take()
        if not low or (low == "[" and self._peek() == ":"):
            raise PatternError("unterminated or unknown character class")
        if low == "\\":
            escaped = self._parse_escape()
            if escaped.negated or len(escaped.ranges) != 1 or escaped.ranges[0][0] != escaped.ranges[0][1]:
                return tuple(_complement(escaped.ranges)) if escaped.negated else escaped.ranges
            low = escaped.ranges[0][0]
        if self._peek() != "-" or self._text[self._position + 1 : self._position + 2] in ("", "]"):
            return ((low, low),)
        self._take()
        high = self._take()
        if high == "\\":
            high = self._parse_escape().ranges[0][0]
        if high < low:
            raise PatternError(f"invalid character range from {low!r} to {high!r}")
        return ((low, high),)

    def _parse_escape(self) -> CharacterClass:
        character = self._take()
        if character.lower() in _CLASSES and character:
            return CharacterClass(_CLASSES[character.lower()], negated=character.isupper())
        if character in _CONTROLS:
            return self._literal(_CONTROLS[character])
        if not character or character.isalnum():
            raise PatternError(f"unknown escape sequence \\{character}")
        return self._literal(character)

    def _literal(self, character: str) -> CharacterClass:
        return CharacterClass(((character, character),), ignore_case=self._ignore_case)

    def _any_except_newline(self) -> CharacterClass:
        return CharacterClass((("\n", "\n"),), negated=True)

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


def parse_regex(expression: str) -> RegexNode:
    """Return the syntax tree of a regular expression.

    Raises:
        PatternError: The expression is invalid.
    """
    return _Parser(expression).parse()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


def _complement(ranges: CharacterRanges) -> Iterator[tuple[str, str]]:
    """Yield the ranges of characters between the given sorted ranges."""
    low = "\0"
    for first, last in ranges:
        if low < first:
            yield low, chr(ord(first) - 1)
        low = chr(ord(last) + 1)
    yield low, _LAST
