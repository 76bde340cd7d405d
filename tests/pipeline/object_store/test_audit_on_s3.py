"""Audit of tables on S3: equal rows, missing and damaged files, a lost log, and a store that cannot be read."""

from __future__ import annotations

import pytest

from chronik.pipeline.audit import AuditReport, FindingKind, audit
from chronik.pipeline.spark.tasks import run_locally
from chronik.pipeline.tables.catalog import open_table
from chronik.pipeline.tables.storage import TableStorage
from chronik.testing.plugin import BrokerFactory
from tests.pipeline.audit.test_damaged_tables import TOPICS, BrokerWithTables
from tests.pipeline.seaweedfs import S3Server

pytestmark = pytest.mark.xdist_group("spark")


class BrokerWithS3Tables(BrokerWithTables):
    """A broker with two topics whose tables are on S3."""

    def storage(self, topic: str) -> TableStorage:
        return open_table(f"{self.root}/{topic}").storage

    def first_file(self, topic: str) -> str:
        return open_table(f"{self.root}/{topic}").files().files[0].path

    def audit_with(self, **options: str) -> AuditReport:
        return audit(
            [self.broker.data_dir],
            bootstrap=self.broker.bootstrap,
            table_root=self.root,
            storage_options=options,
            tasks=run_locally,
        )


@pytest.fixture
def site(
    chronik_broker_factory: BrokerFactory, s3_server: S3Server, s3_root: str, monkeypatch: pytest.MonkeyPatch
) -> BrokerWithS3Tables:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return BrokerWithS3Tables(chronik_broker_factory(), s3_root)


def test_equal_rows_have_no_findings(site: BrokerWithS3Tables) -> None:
    report = site.audit()
    assert report.is_clean, report.to_text()
    assert (report.tables, report.rows) == (2, 40)


def test_missing_and_damaged_files_are_reported_with_their_uri(site: BrokerWithS3Tables) -> None:
    removed, damaged = (site.first_file(topic) for topic in TOPICS)
    site.storage(TOPICS[0]).remove(removed)
    with site.storage(TOPICS[1]).create(damaged) as file:
        file.write(b"not a Parquet file")
    findings = {each.file: each for each in site.audit().findings if each.kind is FindingKind.TABLE_FILE}
    assert findings.keys() == {f"{site.root}/{TOPICS[0]}/{removed}", f"{site.root}/{TOPICS[1]}/{damaged}"}
    assert findings[f"{site.root}/{TOPICS[0]}/{removed}"].says == "the table file does not exist"
    assert all("\n" not in each.says and "\x1b" not in each.says for each in findings.values())


def test_lost_transaction_log_is_reported(site: BrokerWithS3Tables) -> None:
    storage = site.storage(TOPICS[0])
    for version in range(3):
        storage.remove(f"_delta_log/{version:020}.json")
    report = site.audit()
    assert f"table {site.root}/{TOPICS[0]} has Parquet files but no transaction log" in report.unchecked


def test_unreadable_store_is_not_a_finding(site: BrokerWithS3Tables, s3_server: S3Server) -> None:
    report = site.audit_with(**s3_server.options | {"aws_secret_access_key": "wrong"})
    assert report.findings == []
    assert len(report.unchecked) == len(TOPICS)
    assert all("the secret access key does not belong to the access key ID" in each for each in report.unchecked)
    assert report.exit_code == 2
