from __future__ import annotations

import pytest

from chronik.principals import ANONYMOUS, Principal


def test_principal_is_parsed_and_formatted() -> None:
    assert str(Principal.parse("User:CN=a:b,O=c")) == "User:CN=a:b,O=c"
    assert Principal.parse("User:alice") == Principal("User", "alice")
    assert str(ANONYMOUS) == "User:ANONYMOUS"


@pytest.mark.parametrize("text", ["", "alice", "User:", ":alice"])
def test_invalid_principal_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="TYPE:NAME, such as User:alice"):
        Principal.parse(text)
