"""Runs a job that a document describes: a PySpark program or a query in SQL, and says how it does.

`python -m fairlead_spark.job DOCUMENT` is the driver of a StreamJob in a cluster, and what
`fairlead spark run` starts on a laptop. A program asks `current_job()` where it runs:

    job = current_job()
    flights = spark.readStream.format("fairlead").options(**job.source_options("flights")).load()
    query = flights.writeStream.option("checkpointLocation", job.checkpoint("delays"))
    query.trigger(**job.trigger).start()
"""

from fairlead_spark.job.document import Job, JobDocumentError, current_job

__all__ = ["Job", "JobDocumentError", "current_job"]
