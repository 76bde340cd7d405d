"""Responses to requests for sample rows of a driver's tables: see `chronik.broker.requests.sample_requests`.

The responder has its own thread and connection, and serves one request at a time. Landing never waits for it, and
errors are returned to the client or logged.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from chronik.client.access.settings import Bootstrap
from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.client.errors import ApiNotSupported, ClientError
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.journal.journal_client import JOURNAL_PARTITION
from chronik.protocol.errors import KafkaError
from chronik.protocol.messages.answer_samples import (
    AnswerSamplesRequest,
    AnswerSamplesResponse,
    SampleRequestEntry,
    SampleResponseEntry,
)

logger = logging.getLogger("chronik.pipeline")

POLL_WAIT_SECONDS: Final = 5.0
"""Time that a broker waits for a sample request before it returns an empty response."""

REQUEST_SECONDS_MAX: Final = 5.0
RETRY_DELAY_SECONDS_MIN, RETRY_DELAY_SECONDS_MAX = 0.5, 60.0
"""Minimum and maximum delay between retries, with exponential backoff. Brokers before 0.6 reject the request."""

SampleReader = Callable[[str, int], bytes]
"""A function that returns encoded rows of a topic's table, or an encoded error, given the topic and the row count."""


class SampleResponder:
    """A thread that answers requests for sample rows of one pipeline's tables. Call `close` when done."""

    def __init__(self, bootstrap: Bootstrap, pipeline: str, sample: SampleReader) -> None:
        self._bootstrap = bootstrap
        self._pipeline = pipeline
        self._sample = sample
        self._closing = threading.Event()
        self._retry_delay_s = RETRY_DELAY_SECONDS_MIN
        self._thread = threading.Thread(target=self._run, name="chronik-samples", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread after its current request, without waiting for it."""
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                with ClusterClient(self._bootstrap, client_id=CLIENT_ID, timeout_s=REQUEST_SECONDS_MAX) as cluster:
                    self._serve_requests(cluster)
            except ApiNotSupported:
                return  # not a Chronik broker: no client can send sample requests there
            except (ClientError, KafkaError, OSError) as error:
                logger.debug("pipeline %s: cannot poll for sample requests: %s; retrying", self._pipeline, error)
            self._closing.wait(self._retry_delay_s)
            self._retry_delay_s = min(2 * self._retry_delay_s, RETRY_DELAY_SECONDS_MAX)

    def _serve_requests(self, cluster: ClusterClient) -> None:
        """Answer requests for sample rows until the responder is closed.

        Raises:
            ClientError: No broker responds.
            KafkaError: A broker rejects a request.
        """
        responses: list[SampleResponseEntry] = []
        while responses or not self._closing.is_set():
            requests = self._poll(cluster, responses)
            self._retry_delay_s = RETRY_DELAY_SECONDS_MIN
            responses = [SampleResponseEntry(id=each.id, sample=self._read_sample(each)) for each in requests]

    def _poll(self, cluster: ClusterClient, responses: list[SampleResponseEntry]) -> list[SampleRequestEntry]:
        wait_s = 0.0 if self._closing.is_set() else POLL_WAIT_SECONDS
        request = AnswerSamplesRequest(pipeline=self._pipeline, max_wait_ms=int(wait_s * 1000), answers=responses)

        def send_sample_poll() -> AnswerSamplesResponse:
            response = cluster.leader(JOURNAL_PARTITION).request(request, AnswerSamplesResponse, wait_s=wait_s)
            raise_for_code(response.error_code, "polling for sample requests", response.error_message)
            return response

        return cluster.retry(send_sample_poll, repeatable=False).asked

    def _read_sample(self, sample_request: SampleRequestEntry) -> bytes:
        try:
            return self._sample(sample_request.topic, sample_request.rows)
        except Exception:  # landing and later sample requests must continue
            logger.exception(
                "topic %s: reading sample rows failed; returning an error to the client", sample_request.topic
            )
            return b'{"error": "the driver could not read the table; see its log"}'
