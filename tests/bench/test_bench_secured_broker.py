"""Every measurement of `chronik bench` with a broker that requires TLS and SASL authentication."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from chronik.bench.errors import BenchmarkError
from chronik.bench.librdkafka_config import build_client_config
from chronik.bench.main import MEASUREMENTS, main
from chronik.client.access.settings import BootstrapAccess, parse_security
from chronik.client.errors import ClientError
from chronik.testing.secured import SecuredBroker

ARGUMENTS = {
    "produce": ["--records", "25000"],
    "consume": [],
    "round-trip": ["--records", "20"],
    "acks": ["--records", "20"],
    "gaps": ["--seconds", "1"],
    "topics": ["--topics", "3"],
    "metadata": ["--topics", "3", "--requests", "20"],
    "commits": ["--groups", "2", "--seconds", "1"],
    "transactions": ["--seconds", "1"],
}


@pytest.fixture(scope="module", params=[True, False], ids=["SASL_SSL", "SASL_PLAINTEXT"])
def secured(request: pytest.FixtureRequest) -> Iterator[SecuredBroker]:
    with SecuredBroker(tls=request.param, flush="os") as broker:
        yield broker


@pytest.mark.slow
@pytest.mark.parametrize("measurement", MEASUREMENTS)  # in this order: `consume` reads the records of `produce`
def test_measurement_of_secured_broker_uses_client_config(
    measurement: str, secured: SecuredBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = secured.settings()
    del settings["bootstrap.servers"]
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command_arguments = [
        measurement,
        "-b",
        secured.bootstrap,
        "--client-config",
        str(config),
        "--json",
        *ARGUMENTS[measurement],
    ]
    assert main(command_arguments) == 0
    assert json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_measurement_of_secured_broker_fails_without_credentials(secured: SecuredBroker) -> None:
    with pytest.raises(ClientError):
        main(["acks", "-b", secured.bootstrap])


def test_client_config_is_translated_to_librdkafka_settings() -> None:
    security = parse_security(
        {"security.protocol": "SSL", "ssl.keystore.location": "both.pem", "ssl.endpoint.identification.algorithm": ""}
    )
    settings = build_client_config(BootstrapAccess("h:1", security), linger_ms="0")
    assert settings["bootstrap.servers"] == "h:1"
    assert settings["linger.ms"] == "0"
    assert {name: value for name, value in settings.items() if name.startswith(("ssl.", "sasl.", "security."))} == {
        "security.protocol": "SSL",
        "ssl.certificate.location": "both.pem",
        "ssl.key.location": "both.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert "security.protocol" not in build_client_config("h:1")


def test_librdkafka_config_rejects_oauthbearer() -> None:
    security = parse_security(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": "file:///token",
        }
    )
    with pytest.raises(BenchmarkError, match="use PLAIN or SCRAM"):
        build_client_config(BootstrapAccess("h:1", security))
