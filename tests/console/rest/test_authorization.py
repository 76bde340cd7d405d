"""Authentication and authorization of every operation. A new operation without a test case fails."""

from __future__ import annotations

import pytest

from chronik.console.rest.operation import Operation
from chronik.console.rest.table import OPERATIONS
from tests.api.guarded import GuardedNode
from tests.console.rest.asking import Answer, Browser
from tests.console.rest.cases import CASES, EMPTY, FOR_ALL, REFUSED, Case

each_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.id)


def test_every_operation_has_a_case() -> None:
    assert sorted(CASES) == sorted(operation.id for operation in OPERATIONS)


def ask(browser: Browser, operation: Operation, case: Case, body: object = None) -> Answer:
    if operation.events is None:
        return browser.ask(operation.method, case.path, case.body if body is None else body)
    return browser.first_event(case.path, waits_for_it=operation.id != "searching_tail")


@each_operation
def test_operation_requires_login(node: GuardedNode, operation: Operation) -> None:
    case, anonymous = CASES[operation.id], Browser(node.http)
    answer = anonymous.ask(operation.method, case.path, case.body)
    if operation.is_public:
        assert answer.status == 200
        return
    assert answer.status == 401
    assert answer.json == {"error": "authentication required: log in first", "code": None}
    wrong = anonymous.ask(operation.method, case.path, case.body, cookie="chronik_session=" + "x" * 43)
    assert wrong.status == 401


@each_operation
def test_operation_requires_permission(
    node: GuardedNode, root: Browser, mallory: Browser, operation: Operation
) -> None:
    case = CASES[operation.id]
    case.prepare(node, root)
    before = node.records()
    bodies = [case.body] if not case.dry_run else [case.body, {**case.body, "dry_run": False}]
    for body in bodies:
        answer = ask(mallory, operation, case, body)
        text = answer.body.decode()
        if case.without_rights == REFUSED:
            assert answer.status == 403, text
            assert answer.json["code"].endswith("AUTHORIZATION_FAILED")
        elif case.without_rights == EMPTY:
            assert answer.status == 200, text
            assert "secret" not in text
        else:
            assert case.without_rights == FOR_ALL
            assert answer.status == 200
        if case.without_rights != FOR_ALL:
            assert node.records() == before
    done = ask(root, operation, case)
    assert done.status in (200, 201), done
    if operation.events is None and operation.is_mutation and not case.dry_run:
        assert done.json.get("done", True), done
    if case.without_rights == EMPTY:
        assert "secret" in done.body.decode(), "the data exists but is hidden from others"
