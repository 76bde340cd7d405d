"""A streaming query that copies a topic, in a separate process that tests can kill.

python copy_stream.py BOOTSTRAP SOURCE TARGET CHECKPOINT [--master URL] [--records-per-epoch N] [--once]
"""

from __future__ import annotations

import argparse

from chronik.pipeline.spark.runtime import session

LOCAL_MASTER = "local[2,8]"
"""Local master in which a task may fail seven times."""


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "source", "target", "checkpoint"):
        parser.add_argument(name)
    parser.add_argument("--master", default=LOCAL_MASTER)
    parser.add_argument("--records-per-epoch", default="10000")
    parser.add_argument("--once", action="store_true", help="copy the available records, and exit")
    arguments = parser.parse_args()
    spark = session(arguments.master)
    read = (
        spark.readStream.format("chronik")
        .option("bootstrap.servers", arguments.bootstrap)
        .options(subscribe=arguments.source, startingOffsets="earliest", columns="value")
        .options(isolationLevel="read_committed", maxOffsetsPerTrigger=arguments.records_per_epoch)
        .load()
    )
    write = (
        read.selectExpr("value AS key", "value")
        .writeStream.format("chronik")
        .option("bootstrap.servers", arguments.bootstrap)
        .options(topic=arguments.target, checkpointLocation=arguments.checkpoint)
        .trigger(**({"availableNow": True} if arguments.once else {"processingTime": "0 seconds"}))
    )
    write.start().awaitTermination()


if __name__ == "__main__":
    main()
