"""The fault proxy: bytes of a cut process wait, nothing is closed, and a heal lets them go on."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from fairlead_cli.errors import CliError
from fairlead_cli.local.cluster_file import ClusterFile, ProcessEntry, write_cluster_file
from fairlead_cli.local.cluster_supervisor import build_cluster
from fairlead_cli.local.fault_proxy import (
    OUTSIDE,
    FaultProxy,
    ProxyControl,
    Route,
    build_routes,
    find_owner,
    parse_route,
)
from fairlead_cli.local.layout import Ports
from fairlead_cli.local.plan import LaunchPlan
from fairlead_cli.local.process_table import identify

DEADLINE_S = 60.0
SILENCE_S = 0.15


def cluster(*, broker_pid: int | None = None) -> ClusterFile:
    entry = ProcessEntry("broker-0", "127.0.0.1", 1000, 2, id=0)
    if broker_pid is not None:
        process = identify(broker_pid)
        assert process is not None
        entry.pid, entry.start_time = process.pid, process.start_time
    controller = ProcessEntry("controller", "127.0.0.1", 3, 4)
    return ClusterFile("/data", 1000, 2000, None, None, controller, [entry])


@pytest.fixture
def cluster_file(tmp_path: Path) -> Path:
    write_cluster_file(tmp_path / "cluster.json", cluster())
    return tmp_path / "cluster.json"


Scenario = Callable[[FaultProxy, int], Awaitable[None]]


def run(scenario: Scenario, cluster_file: Path, free_port: int) -> None:
    """An echo server named `echo` behind a proxy at `free_port`."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        route = Route("echo", free_port, server.sockets[0].getsockname()[1], True)
        proxy = FaultProxy([route], cluster_file, "127.0.0.1")
        serving = asyncio.create_task(proxy.serve(0))
        try:
            async with asyncio.timeout(DEADLINE_S):
                await scenario(proxy, free_port)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            server.close()

    asyncio.run(main())


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    while True:
        try:
            return await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.01)


async def is_silent(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(SILENCE_S):
            await reader.read(1)
    except TimeoutError:
        return True
    return False


def test_bytes_of_a_cut_process_wait_and_then_go_on(cluster_file: Path, free_port: int) -> None:
    async def scenario(proxy: FaultProxy, port: int) -> None:
        reader, writer = await connect(port)
        writer.write(b"before")
        assert await reader.readexactly(6) == b"before"
        proxy.set_cut(frozenset({"echo"}))
        writer.write(b"during")
        assert await is_silent(reader)
        late_reader, late_writer = await connect(port)
        late_writer.write(b"late")
        assert await is_silent(late_reader)
        proxy.set_cut(frozenset())
        assert await reader.readexactly(6) == b"during"
        assert await late_reader.readexactly(4) == b"late"
        for open_writer in (writer, late_writer):
            open_writer.close()

    run(scenario, cluster_file, free_port)


def test_it_ends_while_bytes_of_a_cut_process_wait(cluster_file: Path, free_port: int) -> None:
    async def scenario(proxy: FaultProxy, port: int) -> None:
        before = asyncio.all_tasks()
        reader, writer = await connect(port)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        proxy.set_cut(frozenset({"echo"}))
        writer.write(b"during")
        assert await is_silent(reader)
        carrying = {each for each in asyncio.all_tasks() - before if "FaultProxy." in repr(each)}
        assert len(carrying) >= 2, "one for each direction"
        for task in carrying:
            task.cancel()
        _, left = await asyncio.wait(carrying, timeout=10.0)
        proxy.set_cut(frozenset())
        writer.close()
        assert not left

    run(scenario, cluster_file, free_port)


def test_others_are_not_touched(cluster_file: Path, free_port: int) -> None:
    async def scenario(proxy: FaultProxy, port: int) -> None:
        reader, writer = await connect(port)
        proxy.set_cut(frozenset({"broker-1"}))
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        writer.close()
        assert await reader.read() == b""

    run(scenario, cluster_file, free_port)


def test_it_knows_which_process_a_connection_comes_from(tmp_path: Path, free_port: int) -> None:
    path = tmp_path / "cluster.json"
    write_cluster_file(path, cluster(broker_pid=os.getpid()))

    async def scenario(proxy: FaultProxy, port: int) -> None:
        reader, writer = await connect(port)
        own_port = writer.get_extra_info("sockname")[1]
        assert find_owner(own_port, port, path) == "broker-0"
        assert find_owner(1, port, path) == OUTSIDE
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        proxy.set_cut(frozenset({"broker-0"}))
        writer.write(b"y")
        assert await is_silent(reader)
        proxy.set_cut(frozenset())
        assert await reader.readexactly(1) == b"y"
        writer.close()

    run(scenario, path, free_port)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /cut/echo HTTP/1.1\r\nHost: 127.0.0.1\r\n", 405),
        ("POST /cut/echo HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\n", 403),
        ("POST /cut/echo HTTP/1.1\r\norigin:null\r\n", 403),
        ("POST /nothing HTTP/1.1\r\n", 404),
        ("\r\n", 404),
    ],
)
def test_no_page_in_a_browser_cuts_anything(
    head: str, status: int, cluster_file: Path, free_port: int
) -> None:
    async def scenario(proxy: FaultProxy, port: int) -> None:
        control = await asyncio.start_server(proxy._control, "127.0.0.1", 0)
        control_port = control.sockets[0].getsockname()[1]
        reader, writer = await connect(control_port)
        writer.write(f"{head}\r\n".encode())
        assert (await reader.readline()).split(b" ")[1] == str(status).encode()
        writer.close()
        states = [proxy.is_cut]
        tool = ProxyControl("127.0.0.1", control_port)
        for act in (lambda: tool.cut(["echo"]), tool.heal):
            await asyncio.to_thread(act)
            states.append(proxy.is_cut)
        assert states == [False, True, False]
        control.close()

    run(scenario, cluster_file, free_port)


def test_routes_stand_in_front_of_every_listener() -> None:
    routes = build_routes(cluster())
    assert [str(route) for route in routes] == [
        "controller:1099:1149:peers",
        "broker-0:1000:1150:clients",
        "broker-0:1100:1200:peers",
    ]
    assert [parse_route(str(route)) for route in routes] == routes


def test_clients_of_a_secure_cluster_are_met_at_its_port_of_tls(tmp_path: Path) -> None:
    ports = Ports(1000, 2000, is_secure=True)
    served = build_cluster(LaunchPlan(tmp_path, 1, ports, {}, (), fault_proxy=True))
    (clients,) = [route for route in build_routes(served) if not route.has_peers]
    assert (clients.port, clients.target_port) == (ports.of_broker(0).kafka, ports.hidden(0).kafka)


def test_a_proxy_that_is_gone_is_an_error_for_people(free_port: int) -> None:
    with pytest.raises(CliError, match="the fault proxy does not answer"):
        ProxyControl("127.0.0.1", free_port).cut(["broker-0"])


def test_a_proxy_that_has_no_processor_for_seconds_is_waited_for(
    cluster_file: Path, free_port: int
) -> None:
    async def scenario(proxy: FaultProxy, port: int) -> None:
        control = await asyncio.start_server(proxy._control, "127.0.0.1", 0)
        tool = ProxyControl("127.0.0.1", control.sockets[0].getsockname()[1])
        cutting = asyncio.create_task(asyncio.to_thread(tool.cut, ["echo"]))
        # Nothing else runs on this loop meanwhile.
        asyncio.get_running_loop().call_soon(time.sleep, 5.5)
        await cutting
        assert proxy.is_cut
        control.close()

    run(scenario, cluster_file, free_port)


def test_the_cluster_file_remembers_the_proxy(tmp_path: Path) -> None:
    from fairlead_cli.local.cluster_file import read_cluster_file

    written = cluster()
    written.proxy = ProcessEntry("proxy", "127.0.0.1", 1000, 2091)
    write_cluster_file(tmp_path / "cluster.json", written)
    read = read_cluster_file(tmp_path / "cluster.json")
    assert read is not None
    assert asdict(read) == asdict(written)
    assert [entry.name for entry in read.entries] == ["broker-0", "controller", "proxy"]
