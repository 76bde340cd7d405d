"""The options of a query as the user set them, with accessors that check their values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from chronik.pipeline.errors import OptionError


class RawOptions:
    """The user's options, with case-insensitive names and typed accessors."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.by_name = {name.lower(): value for name, value in options.items()}
        """Values by name in lower case."""

    def get_str(self, *names: str) -> str | None:
        """Return the value of an option with alternative names, or None if it is not set.

        Raises:
            OptionError: Two of the names are set to different values.
        """
        values = {name: self.by_name[name.lower()] for name in names if name.lower() in self.by_name}
        if len(set(values.values())) > 1:
            raise OptionError(f"{' and '.join(values)} differ: set only one of them")
        return next(iter(values.values()), None)

    def get_bool(self, name: str, default: bool) -> bool:
        value = self.get_str(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise OptionError(f"{name} = {value!r}: expected true or false")
        return value.lower() == "true"

    def get_int(self, name: str, minimum: int = 1, alias: str | None = None) -> int | None:
        value = self.get_str(name) if alias is None else self.get_str(name, alias)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            number = minimum - 1
        if number < minimum:
            raise OptionError(f"{name} = {value!r}: expected a whole number, {minimum} or more")
        return number

    def get_json(self, name: str, shape: str) -> Any:
        value = self.get_str(name)
        try:
            return None if value is None else json.loads(value)
        except ValueError:
            raise OptionError(f"{name} = {value!r}: expected JSON like {shape}") from None

    def get_choice(self, default: str, allowed: tuple[str, ...], *names: str) -> str:
        value = self.get_str(*names) or default
        if value.lower() not in allowed:
            raise OptionError(f"{names[0]} = {value!r}: expected {' or '.join(allowed)}")
        return value.lower()

    def names(self) -> list[str]:
        return sorted(self.by_name)
