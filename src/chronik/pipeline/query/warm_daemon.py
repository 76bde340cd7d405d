"""The process that Spark forks Python workers from, with what our tasks need imported already.

A worker that has nothing to do for a minute ends. The next one would import everything anew, which is most of the time
that a short query takes. Used where all workers run from this installation: in a server on this machine.
"""

from __future__ import annotations

from pyspark.daemon import manager

import chronik.pipeline.query.tail  # noqa: F401

if __name__ == "__main__":
    manager()
