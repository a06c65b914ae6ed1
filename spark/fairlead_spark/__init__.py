"""`format("fairlead")`: a data source of PySpark that reads and writes Kafka topics, without a jar."""
