"""`format("fairlead")`: a data source of PySpark that reads and writes Kafka topics, without a jar.

from fairlead_spark import FairleadDataSource

spark.dataSource.register(FairleadDataSource)
spark.readStream.format("fairlead").option("kafka.bootstrap.servers", …)
"""

from fairlead_spark.source import FairleadDataSource

__all__ = ["FairleadDataSource"]
