from __future__ import annotations

import pytest

from chronik.principals import ANONYMOUS, Principal


def test_a_principal_reads_as_it_is_written() -> None:
    assert str(Principal.parse("User:CN=a:b,O=c")) == "User:CN=a:b,O=c"
    assert Principal.parse("User:alice") == Principal("User", "alice")
    assert str(ANONYMOUS) == "User:ANONYMOUS"


@pytest.mark.parametrize("text", ["", "alice", "User:", ":alice"])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="TYPE:NAME, such as User:alice"):
        Principal.parse(text)
