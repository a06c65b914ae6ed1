"""The topic flights as Parquet files, a folder for each carrier: each record once, whatever fails.

Spark's file sink notes in its own log which files a batch has written, and the checkpoint notes
which offsets it has read: a batch that is repeated after a crash leaves the files of one attempt.
A later run takes the records that have arrived since.

    fairlead spark run examples/spark/jobs/flights_to_parquet.py --available-now -- /tmp/flights
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json

from fairlead_spark.job import current_job

FLIGHT = (
    "year INT, month INT, day INT, dep_time INT, dep_delay DOUBLE, arr_delay DOUBLE, "
    "carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, distance INT"
)

if len(sys.argv) != 2:
    sys.exit("usage: flights_to_parquet.py FOLDER")

job = current_job()
spark = SparkSession.builder.getOrCreate()
flights = (
    spark.readStream.format("fairlead")
    .options(**job.source_options("flights"))
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 200_000)
    .load()
)
fields = from_json(col("value").cast("string"), FLIGHT).alias("flight")
query = (
    flights.select(fields, "partition", "offset")
    .select("flight.*", "partition", "offset")
    .writeStream.format("parquet")
    .partitionBy("carrier")
    .option("path", sys.argv[1])
    .queryName("flights-to-parquet")
    .option("checkpointLocation", job.checkpoint("parquet"))
    .trigger(**job.trigger or {"processingTime": "10 seconds"})
    .start()
)
query.awaitTermination()
