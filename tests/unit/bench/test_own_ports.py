"""Ports of tests and benchmarks: nobody else gets them, and no client of the system does."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from fairlead_bench.peers import own_ports
from fairlead_bench.peers.own_ports import (
    BLOCK,
    FORGOTTEN_AT_ONCE,
    KEPT_COUNT,
    OwnPorts,
    is_free,
    lay_out_blocks,
    read_ephemeral_range,
    take_base,
    take_ports,
)

TAKES_AND_STAYS = f"""
import sys; sys.path.insert(0, {str(own_ports.__file__).rpartition("/fairlead_bench/")[0]!r})
from fairlead_bench.peers.own_ports import OwnPorts, lay_out_blocks, read_ephemeral_range
base = OwnPorts(lay_out_blocks(read_ephemeral_range())[::-1]).take(range(3))
print(base, base + 1, base + 2, flush=True); sys.stdin.read()
"""
"""From the last block on: whoever runs beside this test takes the first ones, also those that are
left behind here."""


@pytest.fixture
def few_ports() -> Iterator[OwnPorts]:
    """One block that nobody has, for a test to use up."""
    free = [block for block in lay_out_blocks(read_ephemeral_range()) if is_free(block[0])]
    ports = OwnPorts(free[-1:])
    yield ports
    ports.release()


@pytest.mark.parametrize(
    ("ephemeral", "count"), [((32_768, 60_999), 54), ((49_152, 65_535), 78), ((15_000, 65_535), 10)]
)
def test_no_block_has_a_port_that_clients_get(ephemeral: tuple[int, int], count: int) -> None:
    blocks = lay_out_blocks(ephemeral)
    assert len(blocks) == count
    first, last = ephemeral
    assert not [port for block in blocks for port in block if first <= port <= last]
    assert len({port for block in blocks for port in block}) == count * BLOCK


def test_where_clients_get_all_ports_servers_get_some_of_them() -> None:
    assert len(lay_out_blocks((1024, 65_535))) == 111


def test_processes_share_no_port_and_leave_theirs_behind() -> None:
    command = [sys.executable, "-c", TAKES_AND_STAYS]
    others = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    try:
        taken = [take_ports(3)]
        for other in others:
            assert other.stdout is not None
            taken.append([int(word) for word in other.stdout.readline().split()])
    finally:
        for other in others:
            os.kill(other.pid, signal.SIGKILL)
            other.communicate()
    used = {port for ports in taken for port in ports}
    assert len(used) == 12
    assert len({port // BLOCK for port in used}) == 4, "each has a block of its own"
    assert all(map(is_free, used))


def test_a_port_is_not_given_twice_while_its_server_or_its_clients_may_come_back() -> None:
    free = [block for block in lay_out_blocks(read_ephemeral_range()) if is_free(block[0])]
    ports = OwnPorts(free[-4:])
    try:
        lately = [ports.take([0]) for _ in range(KEPT_COUNT)]
        assert len(set(lately)) == KEPT_COUNT
        later = {ports.take([0]) for _ in range(KEPT_COUNT)}
        assert later & set(lately)
    finally:
        ports.release()


def test_where_no_block_is_left_the_oldest_ports_are_given_again(few_ports: OwnPorts) -> None:
    lately = [few_ports.take([0]) for _ in range(BLOCK - 1)]
    assert len(set(lately)) == BLOCK - 1
    assert few_ports.take([0]) in lately[:FORGOTTEN_AT_ONCE]
    assert few_ports.take(range(3)) in lately


def test_a_port_that_somebody_has_is_not_given(few_ports: OwnPorts) -> None:
    first = few_ports.take([0])
    with socket.create_server(("127.0.0.1", first + 2)):
        base = few_ports.take([0, 1])
        assert first < base != first + 1
        assert first + 2 not in {base, base + 1}


def test_ports_at_distances_are_all_free_and_within_one_block() -> None:
    shifts = [0, 99, 240]
    first, second = take_base(shifts), take_base(shifts)
    wanted = {base + shift for base in (first, second) for shift in shifts}
    assert len(wanted) == 6
    assert first // BLOCK == (first + 240) // BLOCK


def test_a_process_that_wants_too_many_is_told(few_ports: OwnPorts) -> None:
    with pytest.raises(RuntimeError, match="none of 1 blocks"):
        few_ports.take(range(BLOCK))
