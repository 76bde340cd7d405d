"""A linearizability checker.

A history is linearizable if its operations can be ordered so that a sequential object gives the same responses, and no
operation precedes one that had returned before it was called.

The search is Wing and Gong's with memoization, in time order (like Lowe's just-in-time linearization): the possible
states of the object are a set of configurations. A call adds an operation that may take effect; a return keeps the
configurations in which the operation has taken effect. If none is left, the history is not linearizable, and the
operation that just returned is the unexplained one. Each key is a separate object.

Reductions that keep the set small without changing the verdict:
- A read takes effect as soon as its recorded response is possible. (Invalid for a write that changes nothing.)
- An operation of unknown outcome takes effect only where it changes the state.
- Among unknown operations with the same input, only the first is tried.
- Of configurations that differ only in the unknown operations that took effect, supersets are dropped.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from tests.linearizability.history import Operation

StateT = TypeVar("StateT", bound=Hashable)
InputT = TypeVar("InputT", bound=Hashable)
OutputT = TypeVar("OutputT")

CONFIGURATIONS_MAX: Final = 1_000_000
"""Configurations per key over its whole history, about a minute of work. Beyond that, there is no verdict."""

OPERATIONS_SHOWN_MAX: Final = 25
"""Operations shown before the unexplained one."""


class Undecided(Exception):
    """The search was abandoned without a verdict."""


@dataclass(frozen=True)
class SequentialModel(Generic[StateT, InputT, OutputT]):
    """A sequential object: its initial state, and the next state and response for an input."""

    initial: StateT
    apply: Callable[[StateT, InputT], tuple[StateT, OutputT]]
    only_reads: Callable[[InputT], bool] = lambda _: False
    """Whether the input never changes the state."""


@dataclass(frozen=True)
class LinearizabilityViolation(Generic[StateT, InputT, OutputT]):
    """A key whose operations are not linearizable."""

    unexplained: Operation[InputT, OutputT]
    states: tuple[StateT, ...]
    """The possible states before the unexplained operation."""
    operations: tuple[Operation[InputT, OutputT], ...]
    """The operations of the key that were called before the unexplained one returned, in call order."""

    def __str__(self) -> str:
        shown = self.operations[-OPERATIONS_SHOWN_MAX:]
        return "\n  ".join(
            [
                f"unexplained operation: {self.unexplained}",
                f"possible states before it: {list(self.states)}",
                f"the last {len(shown)} of {len(self.operations)} operations:",
                *map(str, shown),
            ]
        )


def check_history(
    model: SequentialModel[StateT, InputT, OutputT], history: Iterable[Operation[InputT, OutputT]]
) -> list[LinearizabilityViolation[StateT, InputT, OutputT]]:
    """Return a violation for each key whose operations are not linearizable. Raises Undecided."""
    by_key: dict[str, list[Operation[InputT, OutputT]]] = defaultdict(list)
    for operation in history:
        by_key[operation.key].append(operation)
    found = (_Search(model, operations).violation() for operations in by_key.values())
    return [violation for violation in found if violation is not None]


class _Configuration(NamedTuple, Generic[StateT]):
    """A possible state so far. Operations are numbered by their position in the key's history."""

    state: StateT
    ahead: frozenset[int]
    """Operations that have taken effect and not returned."""
    spent: frozenset[int]
    """Operations of unknown outcome that have taken effect."""


class _Search(Generic[StateT, InputT, OutputT]):
    def __init__(
        self, model: SequentialModel[StateT, InputT, OutputT], operations: Sequence[Operation[InputT, OutputT]]
    ) -> None:
        self._model = model
        self._operations = sorted(operations, key=lambda operation: operation.called_ns)
        self._pending: set[int] = set()
        self._unknown: dict[InputT, list[int]] = defaultdict(list)
        """Calls without a return so far, by input."""
        self._frontier = {_Configuration(model.initial, frozenset[int](), frozenset[int]())}
        self._visited = 0

    def violation(self) -> LinearizabilityViolation[StateT, InputT, OutputT] | None:
        for number, is_return in self._events():
            if not is_return:
                self._call(number)
                continue
            before = self._frontier
            self._return(number)
            if not self._frontier:
                return self._unexplained(number, before)
        return None

    def _events(self) -> Iterator[tuple[int, bool]]:
        """Yield calls and returns in time order. At the same time, calls come first, so that the operations overlap."""
        events = []
        for number, operation in enumerate(self._operations):
            events.append((operation.called_ns, False, number))
            if operation.returned_ns is not None:
                events.append((operation.returned_ns, True, number))
        for _, is_return, number in sorted(events):
            yield number, is_return

    def _call(self, number: int) -> None:
        operation = self._operations[number]
        if operation.is_known:
            self._pending.add(number)
            self._frontier = {self._with_reads_applied(configuration) for configuration in self._frontier}
        else:
            self._unknown[operation.input].append(number)

    def _return(self, number: int) -> None:
        reached = self._configurations_with(number)
        self._pending.discard(number)
        left = _Undominated[StateT]()
        self._frontier = {each for each in (_without(number, one) for one in _least_first(reached)) if left.add(each)}

    def _configurations_with(self, number: int) -> list[_Configuration[StateT]]:
        """Return all configurations reachable from the frontier in which this operation has taken effect."""
        reached: list[_Configuration[StateT]] = []
        seen = _Undominated[StateT]()
        waiting = deque(each for each in _least_first(self._frontier) if seen.add(each))
        while waiting:
            configuration = waiting.popleft()
            self._visited += 1
            if self._visited > CONFIGURATIONS_MAX:
                raise Undecided(f"{self._operations[number].key}: more than {CONFIGURATIONS_MAX} configurations")
            if number in configuration.ahead:
                reached.append(configuration)
            else:
                waiting.extend(each for each in self._followers(configuration) if seen.add(each))
        return reached

    def _followers(self, configuration: _Configuration[StateT]) -> Iterator[_Configuration[StateT]]:
        """Yield the configurations in which one more operation has taken effect, except reads."""
        state, ahead, spent = configuration
        for number in self._pending - ahead:
            operation = self._operations[number]
            following, output = self._model.apply(state, operation.input)
            if output == operation.output:
                yield self._with_reads_applied(_Configuration(following, ahead | {number}, spent))
        for asked, numbers in self._unknown.items():
            first = next((number for number in numbers if number not in spent), None)
            if first is not None:
                following, _ = self._model.apply(state, asked)
                if following != state:
                    yield self._with_reads_applied(_Configuration(following, ahead, spent | {first}))

    def _with_reads_applied(self, configuration: _Configuration[StateT]) -> _Configuration[StateT]:
        state, ahead, _ = configuration
        at_once = [number for number in self._pending - ahead if self._is_read_of(state, number)]
        return configuration._replace(ahead=ahead.union(at_once)) if at_once else configuration

    def _is_read_of(self, state: StateT, number: int) -> bool:
        operation = self._operations[number]
        return (
            self._model.only_reads(operation.input) and self._model.apply(state, operation.input)[1] == operation.output
        )

    def _unexplained(
        self, number: int, before: Iterable[_Configuration[StateT]]
    ) -> LinearizabilityViolation[StateT, InputT, OutputT]:
        operation = self._operations[number]
        assert operation.returned_ns is not None
        story = tuple(each for each in self._operations if each.called_ns <= operation.returned_ns)
        states = tuple(dict.fromkeys(configuration.state for configuration in before))
        return LinearizabilityViolation(operation, states, story)


class _Undominated(Generic[StateT]):
    """Configurations that no other configuration makes redundant."""

    def __init__(self) -> None:
        self._spent: dict[tuple[StateT, frozenset[int]], list[frozenset[int]]] = defaultdict(list)

    def add(self, configuration: _Configuration[StateT]) -> bool:
        """Add a configuration and return whether it is not redundant."""
        alike = self._spent[configuration.state, configuration.ahead]
        if any(fewer <= configuration.spent for fewer in alike):
            return False
        alike[:] = [spent for spent in alike if not configuration.spent <= spent]
        alike.append(configuration.spent)
        return True


def _least_first(configurations: Iterable[_Configuration[StateT]]) -> list[_Configuration[StateT]]:
    """Return the configurations sorted so that those that make others redundant come first."""
    return sorted(configurations, key=lambda configuration: len(configuration.spent))


def _without(number: int, configuration: _Configuration[StateT]) -> _Configuration[StateT]:
    return configuration._replace(ahead=configuration.ahead - {number})
