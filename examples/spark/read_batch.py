"""Count a topic's records by partition, once, from its first record to its last.

python examples/spark/read_batch.py localhost:9092 flights
"""

import sys

from pyspark.sql import SparkSession


def main(bootstrap: str, topic: str) -> None:
    spark = SparkSession.builder.appName("read-batch").getOrCreate()
    records = (
        spark.read.format("fairlead")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .load()
    )
    records.groupBy("partition").count().orderBy("partition").show()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
