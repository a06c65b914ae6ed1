"""Copy a topic to another, all there is now; run it again and it copies what came since.

fairlead topic create flights-copy
python examples/spark/copy_topic.py localhost:9092 flights flights-copy checkpoints/copy

The consumer group `copy-FROM-to-TO` shows how far it has come, in every Kafka tool.
"""

import sys

from pyspark.sql import SparkSession


def main(bootstrap: str, origin: str, target: str, checkpoint: str) -> None:
    spark = SparkSession.builder.appName("copy-topic").getOrCreate()
    records = (
        spark.readStream.format("fairlead")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.group.id", f"copy-{origin}-to-{target}")
        .option("subscribe", origin)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
    )
    query = (
        records.select("key", "value", "headers")
        .writeStream.format("fairlead")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    copied = sum(progress["numInputRows"] for progress in query.recentProgress)
    print(f"copied {copied} records")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
