"""How late flights leave each airport, hour by hour, beside the weather of that hour.

Reads the topic flights as a stream and the topic weather as it is when the job starts, and writes a
JSON record for each airport and hour to the topic airport-delays. An hour is written once, when the
watermark has passed it: a flight that reaches the topic more than two hours late does not change
it.

    fairlead topic create airport-delays
    fairlead spark run examples/spark/jobs/airport_delays.py --available-now
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import avg, col, count, from_json, struct, to_json, window
from pyspark.sql.functions import round as rounded

from fairlead_spark.job import current_job

FLIGHT = "carrier STRING, flight INT, origin STRING, dest STRING, dep_delay DOUBLE"
WEATHER = "origin STRING, temp DOUBLE, wind_speed DOUBLE, precip DOUBLE, visib DOUBLE"

job = current_job()
spark = SparkSession.builder.getOrCreate()


def read_json(records: DataFrame, schema: str) -> DataFrame:
    """Return the fields of the JSON in the values, and the time of the record."""
    fields = from_json(col("value").cast("string"), schema).alias("it")
    return records.select(fields, "timestamp").select("it.*", "timestamp")


flights = read_json(
    spark.readStream.format("fairlead")
    .options(**job.source_options("flights"))
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 200_000)
    .load(),
    FLIGHT,
)
# A table that is small and known beforehand is joined as a whole: the join needs no state.
weather = read_json(
    spark.read.format("fairlead")
    .option("kafka.bootstrap.servers", job.bootstrap)
    .option("subscribe", "weather")
    .load(),
    WEATHER,
).withColumnRenamed("timestamp", "hour")

delays = (
    flights.where("dep_delay IS NOT NULL")
    .withWatermark("timestamp", "2 hours")
    .groupBy(window("timestamp", "1 hour"), "origin")
    .agg(rounded(avg("dep_delay"), 1).alias("delay"), count("*").alias("flights"))
    .withColumn("hour", col("window.start"))
    .drop("window")
)
result = delays.join(weather.dropDuplicates(["origin", "hour"]), ["origin", "hour"], "left")

query = (
    result.select(col("origin").alias("key"), to_json(struct("*")).alias("value"))
    .writeStream.format("fairlead")
    .options(**job.sink_options("airport-delays"))
    .outputMode("append")
    .queryName("airport-delays")
    .option("checkpointLocation", job.checkpoint("airport-delays"))
    .trigger(**job.trigger or {"processingTime": "0 seconds"})
    .start()
)
query.awaitTermination()
