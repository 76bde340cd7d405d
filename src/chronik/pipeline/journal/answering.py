"""A driver's ear for those who want to see rows of its tables: see `chronik.broker.requests.samples`.

It has a thread and a connection of its own, and does one question after the other: landing waits for none of them, and
whatever goes wrong here is told to the one who asked, or to nobody.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from chronik.client.access.settings import Bootstrap
from chronik.client.cluster import Cluster, raise_for
from chronik.client.errors import ApiNotSupported, ClientError
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.journal.journal import PARTITION
from chronik.protocol.errors import KafkaError
from chronik.protocol.messages.answer_samples import (
    AnswerSamplesRequest,
    AnswerSamplesResponse,
    SampleAnswer,
    SampleAsked,
)

logger = logging.getLogger("chronik.pipeline")

WAIT_SECONDS: Final = 5.0
"""How long a broker keeps a request that there is no question for."""

REQUEST_SECONDS_MAX: Final = 5.0
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.5, 60.0
"""The pause after a failure; twice as long after each that follows. Brokers from before 0.6 do not know the request."""

Sample = Callable[[str, int], bytes]
"""Returns so many rows of a topic's table, or why there are none, as they are answered."""


class SampleAnswerer:
    """Answers for one pipeline; `close` when done."""

    def __init__(self, bootstrap: Bootstrap, pipeline: str, sample: Sample) -> None:
        self._bootstrap = bootstrap
        self._pipeline = pipeline
        self._sample = sample
        self._closing = threading.Event()
        self._pause_s = PAUSE_SECONDS_MIN
        self._thread = threading.Thread(target=self._run, name="chronik-samples", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Does not wait: the thread ends with the request that is under way, and has nothing to finish."""
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                with Cluster(self._bootstrap, client_id=CLIENT_ID, timeout_s=REQUEST_SECONDS_MAX) as cluster:
                    self._serve(cluster)
            except ApiNotSupported:
                return  # brokers that are not Chronik: nobody can ask there
            except (ClientError, KafkaError, OSError) as error:
                logger.debug("nobody can ask for rows of %s at the moment: %s", self._pipeline, error)
            self._closing.wait(self._pause_s)
            self._pause_s = min(2 * self._pause_s, PAUSE_SECONDS_MAX)

    def _serve(self, cluster: Cluster) -> None:
        """Runs until the driver has ended. Raises ClientError or KafkaError."""
        answers: list[SampleAnswer] = []
        while answers or not self._closing.is_set():
            asked = self._exchange(cluster, answers)
            self._pause_s = PAUSE_SECONDS_MIN
            answers = [SampleAnswer(id=each.id, sample=self._answer(each)) for each in asked]

    def _exchange(self, cluster: Cluster, answers: list[SampleAnswer]) -> list[SampleAsked]:
        wait_s = 0.0 if self._closing.is_set() else WAIT_SECONDS
        request = AnswerSamplesRequest(pipeline=self._pipeline, max_wait_ms=int(wait_s * 1000), answers=answers)

        def ask() -> AnswerSamplesResponse:
            response = cluster.leader(PARTITION).request(request, AnswerSamplesResponse, wait_s=wait_s)
            raise_for(response.error_code, "questions for rows", response.error_message)
            return response

        return cluster.retrying(ask, repeatable=False).asked

    def _answer(self, asked: SampleAsked) -> bytes:
        try:
            return self._sample(asked.topic, asked.rows)
        except Exception:  # whatever it is: landing goes on, and so do questions
            logger.exception("rows of topic %s could not be shown", asked.topic)
            return b'{"error": "its driver could not read the table; its log says why"}'
