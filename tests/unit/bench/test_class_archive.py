"""Kafka's tools keep their classes from one run for the next, and print the same."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from needed_tools import missing

from fairlead_bench.peers.class_archive import ClassArchive
from fairlead_bench.peers.java_tools import JavaTools
from fairlead_bench.peers.kafka_distribution import (
    KafkaDistribution,
    KafkaUnavailableError,
    ensure_kafka,
)

TOOL = "kafka-topics"


@pytest.fixture
def distribution(tmp_path: Path) -> KafkaDistribution:
    """The same jars in a folder where no tool has run."""
    try:
        kafka = ensure_kafka()
    except KafkaUnavailableError as error:
        missing(str(error))
    libs = tmp_path / "libs"
    libs.mkdir()
    for jar in kafka.libs.iterdir():
        (libs / jar.name).symlink_to(jar)
    return replace(kafka, libs=libs)


@pytest.mark.java
def test_a_second_run_maps_the_classes_of_the_first(distribution: KafkaDistribution) -> None:
    tools = JavaTools(distribution, "127.0.0.1:1")
    archive = ClassArchive(distribution, TOOL)
    assert not archive.options
    first = tools.run_unchecked(TOOL, "--version")
    assert (first.returncode, first.stderr) == (0, b"")
    assert [each.name for each in archive.path.parent.iterdir()] == [archive.path.name]
    second = tools.run_unchecked(TOOL, "--version")
    assert (second.returncode, second.stdout, second.stderr) == (0, first.stdout, b"")
    java, *arguments = tools.command(TOOL, "--version")
    loud = subprocess.run(
        [java, "-Xlog:class+load", *arguments], capture_output=True, text=True, check=True
    )
    (loaded,) = (line for line in loud.stdout.splitlines() if "tools.TopicCommand source" in line)
    assert loaded.endswith("source: shared objects file (top)")


def test_other_jars_have_another_archive(tmp_path: Path) -> None:
    (tmp_path / "java").touch()
    archive = ClassArchive(KafkaDistribution("1.0", tmp_path, str(tmp_path / "java")), TOOL)
    before = archive.path
    assert archive.path == before
    os.utime(tmp_path, (1, 1))
    assert archive.path != before


def test_a_run_that_was_killed_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "libs").mkdir()
    (tmp_path / "java").touch()
    distribution = KafkaDistribution("1.0", tmp_path / "libs", str(tmp_path / "java"))
    archive = ClassArchive(distribution, TOOL)
    with pytest.raises(subprocess.TimeoutExpired), archive.recorded() as options:
        assert options
        raise subprocess.TimeoutExpired(TOOL, 1)
    with archive.recorded():
        pass
    assert not list(archive.path.parent.iterdir())
