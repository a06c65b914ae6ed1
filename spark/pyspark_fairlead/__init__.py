"""Lets Spark find `format("fairlead")` by itself, without a registration.

Spark 4 imports the installed top-level packages named `pyspark_…` when a session first asks for a
Python data source, and takes the class `DefaultSource` of each.
"""

from fairlead_spark.source import FairleadDataSource as DefaultSource

__all__ = ["DefaultSource"]
