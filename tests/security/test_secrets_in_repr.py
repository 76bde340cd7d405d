"""Objects that contain passwords, tokens or keys do not show them in `repr`, and so not in logs and tracebacks."""

from __future__ import annotations

import pytest

from chronik.admin.users import UserChange
from chronik.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from chronik.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from chronik.security.sasl.outcomes import HashPassword, SaslChallenge, ValidateToken
from chronik.security.sasl.scram_keys import ScramKeySet

SECRET = "pencil"
IN_BYTES = SECRET.encode()


@pytest.mark.parametrize(
    "held",
    [
        SaslAuthenticateRequest(auth_bytes=IN_BYTES),
        ScramCredentialUpsertion(name="a", salt=IN_BYTES, salted_password=IN_BYTES),
        AlterUserScramCredentialsRequest(upsertions=[ScramCredentialUpsertion(salted_password=IN_BYTES)]),
        UserChange(put=[(1, 4096, IN_BYTES, IN_BYTES)]),
        SaslChallenge(IN_BYTES),
        HashPassword(IN_BYTES, IN_BYTES, 4096, "sha256"),
        ValidateToken(SECRET),
        ScramKeySet(IN_BYTES, 4096, IN_BYTES, IN_BYTES),
    ],
    ids=lambda held: type(held).__name__,
)
def test_repr_does_not_contain_secret(held: object) -> None:
    assert SECRET not in repr(held)
    assert SECRET not in str([held])
