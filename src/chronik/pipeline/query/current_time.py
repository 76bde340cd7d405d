"""Replacement of the current time in statements that Spark plans twice, so that both plans have the same constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from chronik.pipeline.query.lexer import SqlToken, TokenKind, tokenize_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FUNCTIONS: Final = {
    "CURRENT_TIMESTAMP": "current_timestamp",
    "NOW": "current_timestamp",
    "CURRENT_DATE": "current_date",
    "CURDATE": "current_date",
    "LOCALTIMESTAMP": "localtimestamp",
}
"""Functions of the current time that are replaced, with their synonyms."""

_OTHER_FUNCTIONS: Final = ("UNIX_TIMESTAMP", "TO_UNIX_TIMESTAMP", "CURRENT_TIME")
_SPECIAL_TIMES: Final = ("now", "today", "tomorrow", "yesterday")
"""Texts that Spark converts to a time that depends on the current one."""


def depends_on_time(statement: str) -> bool:
    """Return whether the result of a statement may depend on the current time."""
    return any(
        each.is_word(*_FUNCTIONS, *_OTHER_FUNCTIONS) or _is_special_time(each) for each in tokenize_sql(statement)
    )


def replace_current_time(spark: SparkSession, statement: str) -> str | None:
    """Replace the functions of the current time by constants; return None if the statement has others.

    The constants are those of now in the session's time zone. The names of result columns may change.
    """
    tokens = list(tokenize_sql(statement))
    if any(each.is_word(*_OTHER_FUNCTIONS) or _is_special_time(each) for each in tokens):
        return None
    constants: dict[str, str] = {}
    found, position = "", 0
    for number, each in enumerate(tokens):
        if not each.is_word(*_FUNCTIONS):
            continue
        if not _is_call(tokens, number):
            return None  # it may be the name of a column
        constants = constants or _fetch_constants(spark)
        found += statement[position : each.start] + constants[_FUNCTIONS[each.text.upper()]]
        position = tokens[number + 2].end
    return found + statement[position:]


def _is_call(tokens: Sequence[SqlToken], number: int) -> bool:
    after = tokens[number + 1 : number + 3]
    is_member = number > 0 and tokens[number - 1].is_symbol(".")
    return not is_member and len(after) == 2 and after[0].is_symbol("(") and after[1].is_symbol(")")


def _is_special_time(token: SqlToken) -> bool:
    return token.kind is TokenKind.STRING and token.text.strip("rR\"' \t").lower().startswith(_SPECIAL_TIMES)


def _fetch_constants(spark: SparkSession) -> dict[str, str]:
    (row,) = spark.sql(
        "SELECT unix_micros(current_timestamp()), string(current_date()), string(localtimestamp())"
    ).collect()
    return {
        "current_timestamp": f"timestamp_micros({row[0]})",
        "current_date": f"DATE '{row[1]}'",
        "localtimestamp": f"TIMESTAMP_NTZ '{row[2]}'",
    }
