"""All attacks by name. Add new attack modules here."""

from __future__ import annotations

from typing import Final

from tests.abuse import (
    consumer_groups,
    decompression_bombs,
    history,
    http_port,
    invalid_batches,
    kafka_frames,
    large_responses,
    message_exports,
    message_filters,
    peer_port,
    registry,
    topic_names,
    topic_queries,
)
from tests.abuse.attack import Attack
from tests.abuse.authentication import password_guesses, sasl_messages, tls_handshakes
from tests.abuse.floods import http as http_floods
from tests.abuse.floods import kafka as kafka_floods
from tests.abuse.floods import registry as registry_floods

ATTACKS: Final[dict[str, Attack]] = {
    attack.name: attack
    for module in (
        *(
            kafka_frames,
            history,
            http_port,
            message_exports,
            message_filters,
            peer_port,
            topic_names,
            topic_queries,
            consumer_groups,
            invalid_batches,
            decompression_bombs,
            large_responses,
            registry,
        ),
        *(tls_handshakes, sasl_messages, password_guesses),
        *(kafka_floods, http_floods, registry_floods),
    )
    for attack in module.ATTACKS
}
