"""Landing in a separate process, to measure its memory: `python -m bench.pipeline.lander`.

    lander BOOTSTRAP FOLDER WARM_UP_TOPIC TOPIC

Lands the first topic, prints `ready`, waits for a line, lands the second topic and prints rows and seconds as JSON.
"""

from __future__ import annotations

import json
import sys
import time

from bench.pipeline.plan import WITHOUT_MAINTENANCE
from chronik.pipeline.landing.runner import landing_session, run

READY = "ready"


def main(arguments: list[str]) -> int:
    bootstrap, directory, warm_up, topic = arguments
    with landing_session() as spark:
        run(bootstrap, directory, [warm_up], once=True, spark=spark, maintenance=WITHOUT_MAINTENANCE)
        print(READY, flush=True)
        sys.stdin.readline()
        started = time.perf_counter()
        summary = run(bootstrap, directory, [topic], once=True, spark=spark, maintenance=WITHOUT_MAINTENANCE)
        print(json.dumps({"rows": summary.rows[topic], "seconds": time.perf_counter() - started}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
