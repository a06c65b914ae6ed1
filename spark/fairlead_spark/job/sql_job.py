"""A SQL query over topics, as a stream: each source is a view, the sink gets the result."""

from typing import TYPE_CHECKING, Any, Final

from fairlead_spark.job.document import Job, JobDocumentError, Sink, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

RECORD_COLUMNS: Final = ("key", "topic", "partition", "offset", "timestamp")
WITHOUT_STREAMS: Final = frozenset({"jdbc"})
"""Formats that Spark can write only as tables: each batch is written as a table."""


def start_query(spark: "SparkSession", job: Job) -> "StreamingQuery":
    """Start the job's query."""
    if job.sql is None or job.sink is None:
        raise JobDocumentError(f"the job {job.name} has no query, or no sink for it")
    for source in job.sources:
        # Quoted: names of topics have dots and dashes, which other identifiers of SQL have not.
        build_view(spark, job, source).createOrReplaceTempView(f"`{source.view}`")
    result = spark.sql(job.sql)
    writer = _writer(job, job.sink, result)
    writer = writer.queryName(job.name).option("checkpointLocation", job.checkpoint("sql"))
    if job.trigger:
        writer = writer.trigger(**job.trigger)
    return writer.start()


def build_view(spark: "SparkSession", job: Job, source: Source) -> "DataFrame":
    """Return the records of a source; with a schema, the fields of the JSON in their values."""
    from pyspark.sql.functions import col, from_json

    options = job.source_options(*source.topics) | dict(source.options)
    records = spark.readStream.format("fairlead").options(**options).load()
    text = records.withColumn("key", col("key").cast("string"))
    if not source.schema:
        return text.withColumn("value", col("value").cast("string"))
    parsed = text.withColumn("json", from_json(col("value").cast("string"), source.schema))
    names = set(parsed.select("json.*").columns)
    # A field of the JSON replaces a column of the record with the same name.
    kept = [name for name in RECORD_COLUMNS if name not in names]
    return parsed.select("json.*", *kept)


def _writer(job: Job, sink: Sink, result: "DataFrame") -> Any:
    if sink.topic is not None:
        options = job.sink_options(sink.topic) | dict(sink.options)
        writer = _as_records(result).writeStream.format("fairlead").options(**options)
        return writer.outputMode(sink.output_mode)
    if sink.format in WITHOUT_STREAMS:

        def write_batch(batch: "DataFrame", _number: int) -> None:
            batch.write.format(str(sink.format)).options(**sink.options).mode(sink.save_mode).save()

        return result.writeStream.foreachBatch(write_batch).outputMode(sink.output_mode)
    writer = result.writeStream.format(str(sink.format)).options(**sink.options)
    return writer.outputMode(sink.output_mode)


def _as_records(result: "DataFrame") -> "DataFrame":
    """Return rows for a topic: the columns key and value, or all but the key as JSON."""
    from pyspark.sql.functions import col, struct, to_json

    if "value" in result.columns:
        kept = [name for name in ("key", "value", "headers", "partition") if name in result.columns]
        return result.select(*kept)
    fields = [col(name) for name in result.columns if name != "key"]
    value = to_json(struct(*fields)).alias("value")
    if "key" in result.columns:
        return result.select(col("key").cast("string").alias("key"), value)
    return result.select(value)
