"""Ports for tests that start something."""

import pytest

from fairlead_bench.peers.own_ports import take_ports


@pytest.fixture
def free_port() -> int:
    return take_ports(1)[0]
