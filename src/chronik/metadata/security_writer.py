"""The part of `ImageWriter` that changes users, ACLs and quotas."""

from __future__ import annotations

from chronik.errors import check_invariant
from chronik.metadata import hashing
from chronik.metadata.hashing import record_hash
from chronik.metadata.image import Image
from chronik.metadata.records import Acl, SaltSecret, ScramCredential
from chronik.metadata.security.quotas import Entity, QuotaValues


class SecurityWriter:
    """Changes users, ACLs and quotas of an image and updates the state hash."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self._hash_change = 0
        self._old_acls: dict[Acl, Acl | None] = {}
        self._quotas: dict[Entity, None] = {}
        self._users: dict[str, None] = {}

    # --- users ---

    def put_credential(self, credential: ScramCredential) -> None:
        self._users[credential.name] = None
        old = self.image._users.put(credential)
        self._hash_change += record_hash(hashing.USER, credential)
        if old is not None:
            self._hash_change -= record_hash(hashing.USER, old)

    def remove_credential(self, name: str, mechanism: int) -> None:
        self._users[name] = None
        self._hash_change -= record_hash(hashing.USER, self.image._users.remove(name, mechanism))

    def set_salt_secret(self, secret: bytes) -> None:
        check_invariant(not self.image._salt_secret, "the cluster has a secret already")
        self.image._salt_secret = secret
        self._hash_change += record_hash(hashing.SALT_SECRET, SaltSecret(secret))

    # --- ACLs ---

    def add_acl(self, acl: Acl) -> None:
        self._old_acls.setdefault(acl, None)
        self.image._acls[acl] = None
        self._hash_change += record_hash(hashing.ACL, acl)

    def remove_acl(self, acl: Acl) -> None:
        self._old_acls.setdefault(acl, acl)
        del self.image._acls[acl]
        self._hash_change -= record_hash(hashing.ACL, acl)

    # --- quotas ---

    def set_quotas(self, entity: Entity, values: QuotaValues) -> None:
        """Replace the quotas of an entity. Empty values remove them."""
        for each, sign in ((self.image._quotas.pop(entity, None), -1), (values, 1)):
            if each:
                self._hash_change += sign * record_hash(hashing.QUOTA, entity, each)
        if values:
            self.image._quotas[entity] = values
        self._quotas[entity] = None
