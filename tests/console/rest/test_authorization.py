"""Authentication and authorization of every operation. A new operation without a test case fails."""

from __future__ import annotations

import pytest

from chronik.console.rest.operation_table import OPERATIONS, RestOperation
from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient, ApiResponse
from tests.console.rest.operation_cases import CASES, EMPTY, PUBLIC, REJECTED, OperationCase

each_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.id)


def test_every_operation_has_a_case() -> None:
    assert sorted(CASES) == sorted(operation.id for operation in OPERATIONS)


def ask(browser: ApiClient, operation: RestOperation, case: OperationCase, body: object = None) -> ApiResponse:
    if operation.events is None:
        return browser.send(operation.method, case.path, case.body if body is None else body)
    return browser.first_event(case.path, waits_for_event=operation.id != "searching_tail")


@each_operation
def test_operation_requires_login(node: AuthorizingNode, operation: RestOperation) -> None:
    case, anonymous = CASES[operation.id], ApiClient(node.http)
    answer = anonymous.send(operation.method, case.path, case.body)
    if operation.is_public:
        assert answer.status == 200
        return
    assert answer.status == 401
    assert answer.json == {"error": "authentication required: log in first", "code": None}
    wrong = anonymous.send(operation.method, case.path, case.body, cookie="chronik_session=" + "x" * 43)
    assert wrong.status == 401


@each_operation
def test_operation_requires_permission(
    node: AuthorizingNode, root: ApiClient, mallory: ApiClient, operation: RestOperation
) -> None:
    case = CASES[operation.id]
    case.prepare(node, root)
    before = node.stored_records()
    bodies = [case.body] if not case.dry_run else [case.body, {**case.body, "dry_run": False}]
    for body in bodies:
        answer = ask(mallory, operation, case, body)
        text = answer.body.decode()
        if case.unauthorized_result == REJECTED:
            assert answer.status == 403, text
            assert answer.json["code"].endswith("AUTHORIZATION_FAILED")
        elif case.unauthorized_result == EMPTY:
            assert answer.status == 200, text
            assert "secret" not in text
        else:
            assert case.unauthorized_result == PUBLIC
            assert answer.status == 200
        if case.unauthorized_result != PUBLIC:
            assert node.stored_records() == before
    done = ask(root, operation, case)
    assert done.status in (200, 201), done
    if operation.events is None and operation.is_mutation and not case.dry_run:
        assert done.json.get("done", True), done
    if case.unauthorized_result == EMPTY:
        assert "secret" in done.body.decode(), "the data exists but is hidden from others"
