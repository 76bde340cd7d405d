"""Sealing of login states."""

from __future__ import annotations

import time

import pytest

from chronik.security.oidc.login_state import (
    LOGIN_SECONDS_MAX,
    InvalidLoginState,
    LoginStateSeal,
    create_login_state,
)


def test_nodes_with_the_same_secret_open_the_state() -> None:
    state = create_login_state("#/topics")
    sealed = LoginStateSeal("secret").seal(state)
    assert LoginStateSeal("secret").open(sealed) == state
    assert state.verifier not in sealed


def test_states_of_other_clusters_and_changed_states_are_rejected() -> None:
    seal = LoginStateSeal("secret")
    sealed = seal.seal(create_login_state())
    changed = sealed[:-10] + ("A" if sealed[-10] != "A" else "B") + sealed[-9:]
    for text in (LoginStateSeal("other").seal(create_login_state()), changed, sealed[:50], "", "ä"):
        with pytest.raises(InvalidLoginState):
            seal.open(text)


def test_processes_without_a_secret_have_different_keys() -> None:
    first, second = LoginStateSeal(None), LoginStateSeal(None)
    with pytest.raises(InvalidLoginState):
        second.open(first.seal(create_login_state()))


def test_state_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    seal = LoginStateSeal("secret")
    sealed = seal.seal(create_login_state())
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + LOGIN_SECONDS_MAX - 1)
    seal.open(sealed)
    monkeypatch.setattr(time, "time", lambda: now + LOGIN_SECONDS_MAX + 1)
    with pytest.raises(InvalidLoginState):
        seal.open(sealed)


def test_random_values_differ() -> None:
    first, second = create_login_state(), create_login_state()
    values = {first.state, first.nonce, first.verifier, second.state, second.nonce, second.verifier}
    assert len(values) == 6
    assert first.is_state(first.state)
    assert not first.is_state(second.state)
    assert not first.is_state("\ud800")
