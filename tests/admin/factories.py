"""Construction of a TopicAdmin over a test's metadata store."""

from __future__ import annotations

from random import Random

from chronik.admin.topic_planner import TopicPlanner
from chronik.admin.topics import TopicAdmin
from chronik.clock import SystemClock
from chronik.configs.resolver import ConfigResolver
from chronik.ids import generate_id
from chronik.metadata.stores.store import MetadataStore


def topic_admin(store: MetadataStore, seed: int = 1) -> TopicAdmin:
    configs = ConfigResolver(store, 1, {})
    return TopicAdmin(store, configs, TopicPlanner(store, configs, SystemClock(), generate_id, Random(seed).randrange))
