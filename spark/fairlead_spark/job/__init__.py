"""Runs the job in a document (a PySpark program or a SQL query), and reports its progress.

`python -m fairlead_spark.job DOCUMENT` is the driver of a StreamJob in a cluster;
`fairlead spark run` starts it on a laptop. A program gets its parameters from `current_job()`:

    job = current_job()
    flights = spark.readStream.format("fairlead").options(**job.source_options("flights")).load()
    query = flights.writeStream.option("checkpointLocation", job.checkpoint("delays"))
    query.trigger(**job.trigger).start()
"""

from fairlead_spark.job.document import Job, JobDocumentError, current_job

__all__ = ["Job", "JobDocumentError", "current_job"]
