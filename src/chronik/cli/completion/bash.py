"""The script for bash, which zsh can read as well.

It has all words in it, so that a completion starts no process, but for names of topics. It is written for bash from 3.2
on (macOS has that one), and does without names that are special in zsh, such as `words`, `path` or `options`. Nothing
that was typed, or that a broker has answered, is expanded or evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from shlex import quote

from chronik.cli.completion.tree import Kind, Place, Value

FOR_ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"

_BEGIN = """\
# Completes the words of chronik. Made by: chronik completion SHELL

# What may follow after these words: other words, options, and which of these want a word.
_chronik_place() {
    follow='' flags='' wanting=''
    case $1 in
"""

_BETWEEN = """\
    esac
}

# What is expected after these words and an option of theirs, or as their first, second, … word.
_chronik_expected() {
    expected=''
    case $1 in
"""

_END = r"""    esac
}

# What was said of the broker.
_chronik_asked() {
    case $1 in
    -b | --bootstrap-server | --client-config)
        set -- "$1" "${2#[\"\']}"
        set -- "$1" "${2%[\"\']}"
        asked+=("$1" "${2/#\~\//$HOME/}")
        ;;
    esac
}

_chronik() {
    local given=() asked=() found=() i word piece='' before='' option='' place='' number=0
    local follow flags wanting expected='' rest=${COMP_LINE:0:COMP_POINT}
    COMPREPLY=()
    # bash takes words apart at : and =, which is undone here: what no space parts is one word.
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $i -eq 0 || $rest == [[:space:]]* ]]; then
            while [[ $rest == [[:space:]]* ]]; do rest=${rest#?}; done
            if [[ $i -eq $COMP_CWORD ]]; then word=$rest; fi
            given+=("$word")
        else
            if [[ $i -eq $COMP_CWORD ]]; then word=$rest; fi
            given[${#given[@]}-1]+=$word
        fi
        piece=$word
        rest=${rest#"$word"}
    done
    local typed=${given[${#given[@]}-1]}

    _chronik_place ''
    for ((i = 1; i < ${#given[@]} - 1; i++)); do
        word=${given[i]}
        if [[ -n $option ]]; then
            _chronik_asked "$option" "$word"
            option=''
        elif [[ $word == --*=* ]]; then
            _chronik_asked "${word%%=*}" "${word#*=}"
        elif [[ $word == -?* ]]; then
            if [[ " $wanting " == *" $word "* ]]; then option=$word; fi
        elif [[ " $follow " == *" $word "* ]]; then
            place="${place:+$place }$word"
            _chronik_place "$place"
        else
            number=$((number + 1))
        fi
    done

    local lead=''
    if [[ -n $option ]]; then
        _chronik_expected "$place $option"
    elif [[ $typed == --*=* ]]; then
        lead=${typed%%=*}=
        _chronik_expected "$place ${typed%%=*}"
    elif [[ $typed == -* ]]; then
        expected=$flags
    elif [[ -n $follow ]]; then
        if [[ $number -eq 0 ]]; then expected=$follow; fi  # nothing follows a word that nobody knows
    else
        _chronik_expected "$place $((number + 1))"
        if [[ -z $expected && -z $typed ]]; then expected=$flags; fi
    fi

    case $expected in
    '<file>' | '<folder>')
        compopt -o filenames 2>/dev/null
        i=-f
        if [[ $expected == '<folder>' ]]; then i=-d; fi
        while IFS= read -r word; do found+=("$lead$word"); done < <(compgen "$i" -- "${typed#"$lead"}")
        ;;
    '<topic>')
        while IFS= read -r word; do found+=("$lead$word"); done < <(
            command chronik completion topics ${asked[@]+"${asked[@]}"} 2>/dev/null </dev/null
        )
        ;;
    *)
        for word in $expected; do found+=("$lead$word"); done
        ;;
    esac

    # Readline replaces what follows the last : or = alone.
    if [[ $piece == [:=]* ]]; then piece=${piece#?}; fi
    before=${typed%"$piece"}
    for word in ${found[@]+"${found[@]}"}; do
        if [[ $word == "$typed"* ]]; then COMPREPLY+=("${word#"$before"}"); fi
    done
}

complete -F _chronik chronik
"""


def bash_script(places: Iterable[Place]) -> str:
    known = list(places)
    return "".join([_BEGIN, *map(_place, known), _BETWEEN, *(line for each in known for line in _values(each)), _END])


def _place(place: Place) -> str:
    follow = " ".join(name for name, _ in place.actions)
    flags = " ".join(name for option in place.options for name in option.names)
    wanting = " ".join(name for option in place.options if option.value is not None for name in option.names)
    return (
        f"    {quote(' '.join(place.words))}) follow={quote(follow)} flags={quote(flags)} wanting={quote(wanting)} ;;\n"
    )


def _values(place: Place) -> Iterator[str]:
    words = " ".join(place.words)
    for option in place.options:
        if option.value is not None and (expected := _expected(option.value)):
            patterns = " | ".join(quote(f"{words} {name}") for name in option.names)
            yield f"    {patterns}) expected={quote(expected)} ;;\n"
    for number, value in enumerate(place.values, 1):
        if expected := _expected(value):
            pattern = f"{quote(f'{words} ')}[0-9]*" if value.repeats else quote(f"{words} {number}")
            yield f"    {pattern}) expected={quote(expected)} ;;\n"


def _expected(value: Value) -> str:
    """Returns the choices, or the kind of word in brackets, or nothing."""
    if value.choices:
        return " ".join(value.choices)
    return "" if value.kind is Kind.ANYTHING else f"<{value.kind.value}>"
