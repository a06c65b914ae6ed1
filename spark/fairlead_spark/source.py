"""The data source that Spark finds (`pyspark_fairlead`) or that `spark.dataSource.register` takes.

Spark imports it in a new process for each question, so each method imports only what it needs.
"""

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from fairlead_spark.errors import OptionError
from fairlead_spark.options import parse_sink_options, parse_source_options


class FairleadDataSource(DataSource):
    """`format("fairlead")`. Options are checked before anything runs."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "fairlead"

    def schema(self) -> str:
        """Return the columns of a read: those of Spark's Kafka source."""
        from fairlead_spark.reading.source_schema import spark_schema

        include_headers = self.options.get("includeHeaders", "false").strip().lower() == "true"
        return spark_schema(include_headers=include_headers)

    def reader(self, schema: Any) -> DataSourceReader:
        """For `spark.read`."""
        from fairlead_spark.reading.batch_reader import FairleadBatchReader, FilteringBatchReader
        from fairlead_spark.reading.source_schema import check_schema

        options = parse_source_options(self.options, is_stream=False)
        check_schema(schema, include_headers=options.include_headers)
        return (
            FilteringBatchReader(options) if options.push_filters else FairleadBatchReader(options)
        )

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802  # Spark's name.
        """For `spark.readStream`."""
        from fairlead_spark.reading.source_schema import check_schema
        from fairlead_spark.reading.stream_reader import FairleadStreamReader

        options = parse_source_options(self.options, is_stream=True)
        check_schema(schema, include_headers=options.include_headers)
        return FairleadStreamReader(options)

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        """For `df.write`."""
        from fairlead_spark.writing.sink import FairleadBatchWriter
        from fairlead_spark.writing.sink_columns import check_sink_schema
        from fairlead_spark.writing.sink_settings import read_producer_settings

        if overwrite:
            raise OptionError("a topic is only ever appended to: write with mode('append')")
        options = parse_sink_options(self.options)
        read_producer_settings(options.client)
        columns = check_sink_schema(schema, options)
        if options.is_exactly_once:
            from fairlead_spark.exactly_once.exactly_once_sink import ExactlyOnceBatchWriter

            return ExactlyOnceBatchWriter(options, columns)
        return FairleadBatchWriter(options, columns)

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """For `df.writeStream`."""
        from fairlead_spark.writing.sink import FairleadStreamWriter
        from fairlead_spark.writing.sink_columns import check_sink_schema
        from fairlead_spark.writing.sink_settings import read_producer_settings

        options = parse_sink_options(self.options, is_stream=True)
        read_producer_settings(options.client)
        columns = check_sink_schema(schema, options)
        if options.is_exactly_once:
            from fairlead_spark.exactly_once.exactly_once_sink import ExactlyOnceStreamWriter

            return ExactlyOnceStreamWriter(options, columns)
        return FairleadStreamWriter(options, columns)
