"""Command-line errors suggest the closest option or command."""

from __future__ import annotations

import pytest

from chronik.bench.main import main as bench
from chronik.cli.main import main


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("topcs list", "chronik: unknown command 'topcs'; did you mean 'topics'?"),
        ("xyz", "chronik: unknown command 'xyz'; see chronik --help"),
        ("topics lst", "argument ACTION: invalid choice: 'lst' (choose from "),
        ("topics lst", "; did you mean 'list'?"),
        (
            "topics create t --partitons 3",
            "chronik topics create: error: unrecognized arguments: --partitons 3; did you",
        ),
        ("topics create t --partitons 3", "did you mean '--partitions'?"),
        ("consume t --folow", "unrecognized arguments: --folow; did you mean '--follow'?"),
        ("produce t --acks al", "invalid choice: 'al'"),
        ("produce t --acks al", "did you mean 'all'?"),
        ("start --kafak=x", "unrecognized arguments: --kafak=x; did you mean '--kafka'?"),
        ("pipeline dlq lst t", "did you mean 'list'?"),
    ],
)
def test_misspelled_command_or_option_suggests_closest_one(
    words: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: int | str | None = main(words.split())
    except SystemExit as exit:
        code = exit.code
    assert code == 2
    assert expected in capsys.readouterr().err


def test_misspelled_benchmark_suggests_closest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(["produc"]) == 2
    assert "unknown measurement 'produc'; did you mean 'produce'?" in capsys.readouterr().err


def test_option_without_similar_names_gets_no_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["topics", "list", "--xyzxyz"])
    assert "unrecognized arguments: --xyzxyz\n" in capsys.readouterr().err
