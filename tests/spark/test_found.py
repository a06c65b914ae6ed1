"""`format("fairlead")` without a line that registers it, and with one."""

from spark_source import Source, Topics, numbers

from fairlead_spark import FairleadDataSource


def test_spark_finds_the_format_and_a_registration_does_no_harm(
    source: Source, topics: Topics
) -> None:
    name = topics.create("found")
    topics.fill(name, 0, 20)
    assert numbers(source.read(subscribe=name)) == list(range(20))
    for _ in range(2):
        source.spark.dataSource.register(FairleadDataSource)
        assert numbers(source.read(subscribe=name)) == list(range(20))
