"""`format("fairlead")`: a data source of PySpark that reads and writes Kafka topics, without a jar.

    spark.readStream.format("fairlead").option("kafka.bootstrap.servers", …)

Spark finds it by itself (`pyspark_fairlead`); `spark.dataSource.register(FairleadDataSource)` gives
it to a session whose Python workers look elsewhere for packages.
"""

from fairlead_spark.source import FairleadDataSource

__all__ = ["FairleadDataSource"]
