"""ACLs of producers and consumers, and ACLs as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

import pytest

from chronik.client.security import AclBinding
from chronik.console.rest.errors import RestError
from chronik.console.rest.operations.acl_csv import COLUMNS, format_acls, parse_acls
from chronik.console.rest.operations.csv_cells import disable_formula, restore_formula
from chronik.limits import ACLS_PER_REQUEST_MAX
from tests.console.rest.api_client import ApiClient

HEADER = ",".join(COLUMNS)
SHOP = "User:shop"


@pytest.fixture(autouse=True)
def without_acls(root: ApiClient) -> Iterator[None]:
    yield
    if acls := root.get("/acls?limit=500").json["items"]:
        assert root.post("/acls/delete", {"acls": acls}).status == 200


def describe(acls: list[dict[str, str]]) -> list[str]:
    return [f"{each['resource']} {each['pattern']} {each['name']} {each['operation']}" for each in acls]


def test_producer_gets_the_acls_of_kafka_acls(root: ApiClient) -> None:
    body = {"principal": SHOP, "topics": ["orders"], "transactional_ids": ["shop"], "idempotent": True}
    expected = [
        "topic literal orders write",
        "topic literal orders describe",
        "topic literal orders create",
        "transactional-id literal shop write",
        "transactional-id literal shop describe",
        "cluster literal kafka-cluster idempotent-write",
    ]
    planned = root.post("/acls/producer", {**body, "dry_run": True}).json
    assert describe(planned["added"]) == expected
    assert (planned["existing"], planned["done"]) == ([], False)
    assert root.get("/acls").json["total"] == 0
    assert root.post("/acls/producer", body).json["done"] is True
    created = root.get("/acls?principal=User:shop").json["items"]
    assert sorted(describe(created)) == sorted(expected)
    assert {(each["host"], each["permission"]) for each in created} == {("*", "allow")}
    again = root.post("/acls/producer", {**body, "topics": ["orders", "more"]}).json
    assert describe(again["existing"]) == expected
    assert len(again["added"]) == 3


def test_consumer_gets_the_acls_of_kafka_acls(root: ApiClient) -> None:
    body = {"principal": SHOP, "topics": ["a", "b"], "groups": ["g"], "pattern": "prefixed", "host": "10.0.0.1"}
    added = root.post("/acls/consumer", body).json["added"]
    assert describe(added) == [
        "topic prefixed a read",
        "topic prefixed a describe",
        "topic prefixed b read",
        "topic prefixed b describe",
        "group prefixed g read",
    ]
    assert {each["host"] for each in added} == {"10.0.0.1"}
    assert root.get("/acls?host=10.0.0.1").json["total"] == 5


def test_exported_acls_can_be_imported(root: ApiClient) -> None:
    acls = [
        {"resource": "topic", "name": "=1+1", "principal": "User:CN=a,OU=b", "operation": "read"},
        {"resource": "group", "name": "-", "pattern": "prefixed", "principal": SHOP, "operation": "all"},
        {"resource": "transactional-id", "name": ' "x\n', "principal": SHOP, "operation": "describe"},
        {"resource": "subject", "name": "*", "principal": SHOP, "operation": "read", "permission": "deny"},
    ]
    assert root.post("/acls", {"acls": acls}).status == 201
    response = root.get("/acls/export")
    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    assert response.headers["content-disposition"] == 'attachment; filename="acls.csv"'
    text = response.body.decode()
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert tuple(rows[0]) == COLUMNS
    assert "'=1+1" in {row["ResourceName"] for row in rows}
    assert "User:shop,SUBJECT,LITERAL,*,READ,DENY,*" in text.splitlines(), "Kafbat UI does not understand quotes"
    assert len(root.get("/acls/export?resource=topic").body.splitlines()) == 2
    before = root.get("/acls").json["items"]
    assert root.post("/acls/delete", {"acls": before[1:]}).status == 200
    planned = root.post("/acls/import", {"csv": text, "dry_run": True}).json
    assert (len(planned["added"]), planned["existing"], planned["invalid"]) == (3, before[:1], [])
    assert root.get("/acls").json["total"] == 1
    assert root.post("/acls/import", {"csv": text}).json["done"] is True
    assert root.get("/acls").json["items"] == before


def test_import_with_an_invalid_line_creates_nothing(root: ApiClient) -> None:
    lines = [
        "\ufeff" + HEADER.replace("Principal", "KafkaPrincipal"),
        "User:shop,Topic,Literal,orders,Read,Allow,*",
        "",
        "User:shop,TOPIC,LITERAL,orders,READ,ALLOW",
        "User:shop,TOPIC,LITERAL,orders,PERUSE,ALLOW,*",
        "shop,TOPIC,LITERAL,orders,READ,ALLOW,*",
        "User:shop,CLUSTER,LITERAL,orders,READ,ALLOW,*",
        'User:shop,TOPIC,LITERAL,"a"b,READ,ALLOW,*',
        "User:shop, transactional_id, PREFIXED, x, IDEMPOTENT_WRITE, DENY, 10.0.0.1",
    ]
    for dry_run in (True, False):
        found = root.post("/acls/import", {"csv": "\n".join(lines), "dry_run": dry_run}).json
        assert [each["line"] for each in found["invalid"]] == [4, 5, 6, 7, 8]
        assert "expected 7 cells" in found["invalid"][0]["error"]
        assert found["invalid"][1]["error"].startswith("Operation: expected one of")
        assert [each["host"] for each in found["added"]] == ["*", "10.0.0.1"]
        assert found["done"] is False
        assert root.get("/acls").json["total"] == 0


def test_import_has_a_limit_of_lines() -> None:
    acl = AclBinding(2, "t", 3, SHOP, "*", 3, 3)
    lines = format_acls(acl._replace(name=f"t{number}") for number in range(ACLS_PER_REQUEST_MAX)).decode()
    assert len(parse_acls(lines).acls) == ACLS_PER_REQUEST_MAX
    with pytest.raises(RestError, match=r"more than 10,000 ACLs"):
        parse_acls(lines + "User:shop,TOPIC,LITERAL,one-more,READ,ALLOW,*\r\n")


@pytest.mark.parametrize("text", ["=1", "'=1", "''@x", "-5", "'-5", "'x", "", "'", "\t"])
def test_disabled_formulas_are_restored(text: str) -> None:
    assert restore_formula(disable_formula(text)) == text
    assert not disable_formula(text).startswith(("=", "@", "\t"))
