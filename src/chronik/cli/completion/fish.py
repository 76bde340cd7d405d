"""The script for fish: a `complete` for each word and option, at its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from chronik.cli.completion.tree import Kind, Option, Place, Value

_BEGIN: Final = """\
# Completes the words of chronik. Made by: chronik completion fish

function __chronik_at --description 'whether the words so far are these, options aside'
    set -l given (commandline -opc)
    set -l place
    set -e given[1]
    for word in $given
        set -l longer (string join -- ' ' $place $word)
        if contains -- "$longer" $__chronik_places
            set place $place $word
        end
    end
    test "$place" = "$argv"
end

function __chronik_topics --description 'the topics of the broker that is named so far'
    set -l given (commandline -opc)
    set -l asked
    set -l wants
    for word in $given
        if test -n "$wants"
            set asked $asked $wants $word
            set wants
        else
            switch $word
                case -b --bootstrap-server --client-config
                    set wants $word
                case '--bootstrap-server=*' '--client-config=*'
                    set asked $asked $word
            end
        end
    end
    command chronik completion topics $asked 2>/dev/null </dev/null
end

complete -c chronik -f
"""

_KINDS: Final = {Kind.FOLDER: "(__fish_complete_directories)", Kind.TOPIC: "(__chronik_topics)"}


def fish_script(places: Iterable[Place]) -> str:
    known = list(places)
    names = " ".join(_quoted(" ".join(place.words)) for place in known if place.words)
    return "".join([_BEGIN, f"set -g __chronik_places {names}\n", *(line for each in known for line in _lines(each))])


def _lines(place: Place) -> Iterator[str]:
    at = f"complete -c chronik -n {_quoted(' '.join(('__chronik_at', *place.words)))}"
    for name, about in place.actions:
        yield f"{at} -a {_quoted(name)} -d {_quoted(about)}\n"
    for option in place.options:
        yield f"{at} {_option(option)}\n"
    for value in place.values:
        if words := _words(value):
            yield f"{at} {words}\n"


def _option(option: Option) -> str:
    names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
    about = [f"-d {_quoted(option.about)}"] if option.about else []
    wants = [] if option.value is None else ["-r", _words(option.value)]
    return " ".join(filter(None, (*names, *wants, *about)))


def _words(value: Value) -> str:
    if value.kind is Kind.FILE and not value.choices:
        return "-F"
    words = " ".join(value.choices) or _KINDS.get(value.kind, "")
    return f"-a {_quoted(words)}" if words else ""


def _quoted(text: str) -> str:
    """In single quotes fish knows these two escapes alone."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
