"""Reads two tables with Spark, Delta Lake and Iceberg's runtime, without Chronik, and writes their rows.

Arguments: the directory of the jars, the directory of a Delta table, the database of an Iceberg catalog, and two Arrow
files to write. It runs in an environment of its own, because Iceberg's runtime needs Spark 4.1.
"""

import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession


def main(jars: str, delta_table: str, database: str, delta_rows: str, iceberg_rows: str) -> None:
    settings = {
        "spark.jars": ",".join(map(str, sorted(Path(jars).glob("*.jar")))),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "800m",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.chronik": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.chronik.type": "jdbc",
        "spark.sql.catalog.chronik.uri": f"jdbc:sqlite:{database}",
        "spark.sql.catalog.chronik.warehouse": str(Path(database).parent),
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        write_rows(spark.read.format("delta").load(delta_table), delta_rows)
        orders = spark.table("chronik.chronik.orders")
        write_rows(orders.where("_kafka_partition >= 0"), iceberg_rows)
    finally:
        spark.stop()


def write_rows(rows: DataFrame, path: str) -> None:
    found = rows.toArrow()
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, found.schema) as writer:
        writer.write_table(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
