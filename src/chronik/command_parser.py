"""Command-line parser whose errors suggest the option or command that was probably meant."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from chronik.wording import format_spelling_suggestion

_INVALID_CHOICE: Final = re.compile(r"invalid choice: '(?P<given>.*)' \(choose from (?P<choices>.*)\)", re.DOTALL)


class CommandParser(argparse.ArgumentParser):
    """An `argparse.ArgumentParser` whose errors suggest the closest option or subcommand, also in subparsers."""

    def parse_known_args(  # type: ignore[override] # typeshed has overloads by the type of the namespace
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse the arguments, and report an unknown option with the usage of the selected subcommand."""
        found, extra = super().parse_known_args(args, namespace)
        unknown = next((word for word in extra if re.match("--?[A-Za-z]", word)), None)
        if unknown is not None:
            name = unknown.partition("=")[0]
            suggestion = format_spelling_suggestion(name, self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(extra)}{suggestion}")
        return found, extra

    def error(self, message: str) -> NoReturn:
        if choice := _INVALID_CHOICE.search(message):
            choices = (each.strip("'") for each in choice["choices"].split(", "))  # Python 3.11 quotes the choices
            message += format_spelling_suggestion(choice["given"], choices)
        super().error(message)
