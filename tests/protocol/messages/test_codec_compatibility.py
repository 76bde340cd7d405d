from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from chronik.protocol import codec
from chronik.protocol.apis import KAFKA_APIS

from .oracles import ORACLES
from .values import BY_MESSAGE, MESSAGE_VERSIONS, STYLES, MessageVersion, format_versions, generate

GOLDEN = Path(__file__).parent / "golden"
SOME_STYLES = ("highest", "mixed", "mixed")
"""Styles that detect fields of a wrong position, type or version."""


@pytest.mark.parametrize("pairs", BY_MESSAGE, ids=format_versions)
def test_messages_match_other_codecs(pairs: list[MessageVersion]) -> None:
    compare_all(pairs, SOME_STYLES)


@pytest.mark.slow
@pytest.mark.parametrize("pairs", BY_MESSAGE, ids=format_versions)
def test_random_messages_match_other_codecs(pairs: list[MessageVersion]) -> None:
    compare_all(pairs, STYLES)


def compare_all(pairs: list[MessageVersion], styles: Sequence[str]) -> None:
    for pair in pairs:
        for number, style in enumerate(styles):
            compare(pair, style, number)


def compare(pair: MessageVersion, style: str, number: int) -> None:
    cls, version = pair
    message = generate(cls, version, style, f"{pair} {number}")
    ours = codec.encode(message, version)
    assert codec.decode(cls, version, ours) == message, f"{pair}, {style}"
    for oracle in ORACLES:
        if oracle.supports(cls, version):
            theirs = oracle.encode(message, version)
            assert ours.hex() == theirs.hex(), f"{pair}, {oracle.name}, {style}"
            assert codec.decode(cls, version, theirs) == message, f"{pair}, {oracle.name}, {style}"
            assert oracle.decode(cls, version, ours) == message, f"{pair}, {oracle.name}, {style}"


def test_every_message_version_has_oracle_or_golden_bytes(record_property: Callable[[str, object], None]) -> None:
    known = {pair: sum(oracle.supports(*pair) for oracle in ORACLES) for pair in MESSAGE_VERSIONS}
    alone = [pair for pair, count in known.items() if count == 0]
    tally = Counter(min(count, 2) for count in known.values())
    summary = (
        f"{len(MESSAGE_VERSIONS)} pairs: {tally[2]} with two or more oracles, {tally[1]} with one, {tally[0]} with none"
    )
    record_property("summary", "codec coverage: " + ", ".join([summary, *map(str, alone)]))
    assert len(MESSAGE_VERSIONS) > 300
    kafkas = [pair for pair in alone if pair.cls.__schema__.api_key in KAFKA_APIS]  # other codecs lack Chronik's APIs
    unproven = [str(pair) for pair in kafkas if not (GOLDEN / f"{pair}.txt").exists()]
    assert not unproven, f"no other codec supports these: add golden bytes in {GOLDEN.name}/ (see test_golden_bytes)"


@pytest.mark.slow
def test_generated_messages_vary() -> None:
    for pair in MESSAGE_VERSIONS:
        plain, tagged = pair.cls.__schema__.get_fields_of_version(pair.version)
        if plain or tagged:
            messages = [codec.encode(generate(*pair, style, str(pair)), pair.version) for style in ("empty", "highest")]
            assert messages[0] != messages[1], str(pair)
