"""The data source that `spark.dataSource.register` takes."""

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from fairlead_spark.batch_reader import FairleadBatchReader
from fairlead_spark.options import parse_sink_options, parse_source_options
from fairlead_spark.rows import spark_schema
from fairlead_spark.sink import FairleadBatchWriter, FairleadStreamWriter
from fairlead_spark.sink_columns import check_sink_schema
from fairlead_spark.stream_reader import FairleadStreamReader


class FairleadDataSource(DataSource):
    """`format("fairlead")`. Options are checked before anything runs."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "fairlead"

    def schema(self) -> str:
        """Columns of a read: those of Spark's Kafka source."""
        include_headers = self.options.get("includeHeaders", "false").strip().lower() == "true"
        return spark_schema(include_headers=include_headers)

    def reader(self, schema: Any) -> DataSourceReader:
        """For `spark.read`."""
        return FairleadBatchReader(parse_source_options(self.options, is_stream=False))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802  # Spark's name.
        """For `spark.readStream`."""
        return FairleadStreamReader(parse_source_options(self.options, is_stream=True))

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        """For `df.write`. A log is only ever appended to, whatever the mode."""
        options = parse_sink_options(self.options)
        return FairleadBatchWriter(options, check_sink_schema(schema, options))

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """For `df.writeStream`."""
        options = parse_sink_options(self.options)
        return FairleadStreamWriter(options, check_sink_schema(schema, options))
