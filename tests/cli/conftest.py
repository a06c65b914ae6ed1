"""Real local clusters for the tests of the command."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from local_cluster import TOPICS, Cli, take_cluster_ports


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    """A data directory of its own; nothing runs yet."""
    command = Cli(tmp_path / "data", *take_cluster_ports())
    yield command
    command.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """Three brokers with the sample topics, for all tests of a module."""
    command = Cli(tmp_path_factory.mktemp("cluster") / "data", *take_cluster_ports())
    started = command.up_for_groups("-f", str(TOPICS))
    assert started.code == 0, started
    yield command
    command.close()
