"""The daemon from which Spark forks Python workers, with the modules of Chronik's tasks already imported.

Idle workers exit after a minute, and importing the modules again takes most of the time of a short query. Used only if
all workers run from this installation, in a server on this machine.
"""

from __future__ import annotations

from pyspark.daemon import manager

import chronik.pipeline.query.filter_probe_source
import chronik.pipeline.query.landed_rows
import chronik.pipeline.query.live_tail  # noqa: F401

if __name__ == "__main__":
    manager()
