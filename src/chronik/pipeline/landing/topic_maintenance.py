"""Maintenance of the tables that a pipeline lands, with the settings in the topics' configs."""

from __future__ import annotations

import threading

from chronik.client.cluster import ClusterClient
from chronik.client.errors import ClientError
from chronik.pipeline import CLIENT_ID, failpoints
from chronik.pipeline.journal.reports import ProgressReporter
from chronik.pipeline.landing.local_runner import LandingTaskRunner
from chronik.pipeline.landing.settings import LandingSettings, fetch_topic_configs
from chronik.pipeline.table_maintenance.maintainer import TableMaintainer
from chronik.pipeline.table_maintenance.policy import MaintenanceSettings
from chronik.protocol.errors import KafkaError

REQUEST_SECONDS_MAX = 5.0


def start_maintenance(
    settings: LandingSettings, jobs: LandingTaskRunner, reporter: ProgressReporter, stop: threading.Event, *, once: bool
) -> ProgressReporter:
    """Start the maintenance of a pipeline's tables, and return the reporter from which it learns about them.

    The returned reporter passes all reports on to `reporter`, and closes it.
    """
    if settings.maintenance.is_enabled is False:
        return reporter
    return TableMaintainer(
        settings.group,
        reporter,
        _TopicSettingsReader(settings),
        storage_options=settings.storage_options,
        spark=jobs.open_concurrent_runner,
        stop=stop,
        once=once,
        hit_failpoint=failpoints.hit_failpoint,
    )


class _TopicSettingsReader:
    """Reads the maintenance settings of topics, with connections of its own, because it has its own thread."""

    def __init__(self, settings: LandingSettings) -> None:
        self._settings = settings
        self._known: dict[str, MaintenanceSettings] = {}

    def __call__(self, topic: str) -> MaintenanceSettings:
        """Return a topic's settings; those of the last call if no broker answers.

        Raises:
            ConfigError: A config of the topic is invalid.
            ClientError, KafkaError: The topic's configs are not known.
        """
        try:
            with ClusterClient(self._settings.bootstrap, client_id=CLIENT_ID, timeout_s=REQUEST_SECONDS_MAX) as cluster:
                configs = fetch_topic_configs(cluster, topic)
        except (ClientError, KafkaError):
            if topic not in self._known:
                raise
            return self._known[topic]
        self._known[topic] = self._settings.maintenance.resolve(configs)
        return self._known[topic]
