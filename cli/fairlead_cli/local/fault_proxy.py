"""A TCP proxy between the processes of a local cluster that can cut any of them off.

`fairlead up --fault-proxy` puts it in front of every listener, so that a network can be cut without
root and without a firewall. The proxy reads in /proc which process opened a connection: a cut
process cannot connect to others, nor others to it. Bytes on a cut connection wait, as in the send
buffers of a network that drops packets; connections stay open, and new ones are accepted but get no
answer. After the heal all of them go on.

python -m fairlead_cli.local.fault_proxy --cluster-file FILE --host HOST --http-port N
    --route ROUTE …
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import urllib.request
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fairlead_cli.errors import CliError
from fairlead_cli.local.cluster_file import ClusterFile, read_cluster_file
from fairlead_cli.local.process_table import PROC, holds_any
from fairlead_model.host_address import join_address

CHUNK_BYTES = 256 * 1024
# The proxy moves all bytes of a cluster under load. It does what it is told also where nobody waits
# for that any more; the drill would then have ended beside a cluster that is cut.
CONTROL_TIMEOUT_S = 30.0
REQUEST_BYTES_MAX = 4096
Acceptor = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
# All that are no processes of the cluster: applications, tools, the drill itself.
OUTSIDE = "outside"


@dataclass(frozen=True, slots=True)
class Route:
    """`name` is the process that listens at `target_port`; others connect to `port`.

    The proxy looks up the connecting process only for ports between processes of the cluster
    (`has_peers`), because that reads the kernel's whole table of connections.
    """

    name: str
    port: int
    target_port: int
    has_peers: bool

    def __str__(self) -> str:
        kind = "peers" if self.has_peers else "clients"
        return f"{self.name}:{self.port}:{self.target_port}:{kind}"


def parse_route(text: str) -> Route:
    """Parse the text of a route, as `str` returns it."""
    name, port, target_port, kind = text.split(":")
    return Route(name, int(port), int(target_port), kind == "peers")


class FaultProxy:
    """All routes of a cluster, and the processes that are cut off now."""

    def __init__(self, routes: list[Route], cluster_file: Path, host: str) -> None:
        self._host = host
        self.routes = routes
        self.cluster_file = cluster_file
        self._cut: frozenset[str] = frozenset()
        self._changed = asyncio.Event()

    async def serve(self, http_port: int) -> None:
        """Serve until cancelled."""
        servers = [
            await asyncio.start_server(self._acceptor(route), self._host, route.port)
            for route in self.routes
        ]
        servers.append(await asyncio.start_server(self._control, self._host, http_port))
        print(f"ready proxy http={join_address(self._host, http_port)}", flush=True)
        await asyncio.gather(*(server.serve_forever() for server in servers))

    def set_cut(self, names: frozenset[str]) -> None:
        """Cut off exactly these processes from now on."""
        self._cut = names
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    @property
    def is_cut(self) -> bool:
        """Whether any process is cut off."""
        return bool(self._cut)

    async def _pass(self, ends: frozenset[str]) -> None:
        """Return once bytes may pass between these two."""
        while ends & self._cut:
            await self._changed.wait()

    def _acceptor(self, route: Route) -> Acceptor:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._join(route, reader, writer)

        return accept

    async def _join(
        self, route: Route, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        peer_port = writer.get_extra_info("peername")[1]
        owner = OUTSIDE
        if route.has_peers:
            owner = find_owner(peer_port, route.port, self.cluster_file)
        ends = frozenset({route.name, owner})
        try:
            await self._pass(ends)
            upstream = await asyncio.open_connection(self._host, route.target_port)
        except OSError:
            writer.transport.abort()
            return
        for side in (writer, upstream[1]):
            side.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.gather(
            self._pump(ends, reader, upstream[1]), self._pump(ends, upstream[0], writer)
        )

    async def _pump(
        self, ends: frozenset[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Copy one direction to its end. The end also waits for the heal, unless the proxy ends."""
        try:
            with suppress(OSError):
                while data := await reader.read(CHUNK_BYTES):
                    await self._pass(ends)
                    writer.write(data)
                    await writer.drain()
            await self._pass(ends)
        finally:
            writer.close()

    async def _control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve `GET /healthz`, `POST /cut/NAME,NAME`, `POST /heal`."""
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            status = self._carry_out(await reader.readuntil(b"\r\n\r\n"))
            writer.write(f"HTTP/1.0 {status}\r\nContent-Length: 0\r\n\r\n".encode())
            await writer.drain()
        writer.close()

    def _carry_out(self, head: bytes) -> str:
        """Do what a request asks for; return the status of the answer."""
        method, path, *_ = [*head[:REQUEST_BYTES_MAX].decode(errors="replace").split(" "), "", ""]
        if path == "/healthz":
            return "200 OK"
        if path != "/heal" and not path.startswith("/cut/"):
            return "404 Not Found"
        if method != "POST":
            return "405 Method Not Allowed"
        if b"\r\norigin:" in head.lower():
            # Browsers name the page that a POST comes from: no page may cut a cluster off.
            return "403 Forbidden"
        names = path.removeprefix("/cut/").split(",") if path != "/heal" else ()
        self.set_cut(frozenset(names))
        return "200 OK"


def find_owner(peer_port: int, own_port: int, cluster_file: Path) -> str:
    """Return which process of the cluster opened a connection to the proxy."""
    inode = find_inode(peer_port, own_port)
    cluster = read_cluster_file(cluster_file)
    if inode is None or cluster is None:
        return OUTSIDE
    for entry in cluster.entries:
        if entry.pid is not None and holds_any(PROC / str(entry.pid) / "fd", {inode}):
            return entry.name
    return OUTSIDE


def find_inode(local_port: int, remote_port: int) -> str | None:
    """Return the inode of a connection's other end, from the kernel's table."""
    for table in (PROC / "net" / "tcp", PROC / "net" / "tcp6"):
        # A kernel without IPv6 has no tcp6.
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            fields = line.split()
            ports = [int(fields[column].rsplit(":", 1)[1], 16) for column in (1, 2)]
            if ports == [local_port, remote_port]:
                return f"socket:[{fields[9]}]"
    return None


def build_routes(cluster: ClusterFile) -> list[Route]:
    """Return a route for every listener that other processes use."""
    from fairlead_cli.local.layout import Ports

    ports = Ports(cluster.port, cluster.http_port)
    routes = [Route("controller", ports.session, ports.hidden_session, True)]
    for broker_id, entry in enumerate(cluster.brokers):
        public, hidden = ports.of_broker(broker_id), ports.hidden(broker_id)
        # In a secure cluster the entry has another port.
        routes.append(Route(entry.name, entry.port, hidden.kafka, False))
        routes.append(Route(entry.name, public.internal, hidden.internal, True))
    return routes


class ProxyControl:
    """Controls a running proxy for a drill."""

    def __init__(self, host: str, http_port: int) -> None:
        self._base = f"http://{join_address(host, http_port)}"

    def cut(self, names: list[str]) -> None:
        """Cut these processes off, and reconnect all others."""
        self._post(f"/cut/{','.join(names)}")

    def heal(self) -> None:
        """Reconnect all processes."""
        self._post("/heal")

    def _post(self, path: str) -> None:
        request = urllib.request.Request(self._base + path, method="POST")  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=CONTROL_TIMEOUT_S):  # noqa: S310
                pass
        except OSError as error:
            raise CliError(f"the fault proxy does not answer: {error}") from error


def main() -> None:
    """Run the proxy as a process."""
    parser = argparse.ArgumentParser(description="A TCP proxy that can cut processes off.")
    parser.add_argument("--cluster-file", type=Path, required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--http-port", type=int, required=True)
    parser.add_argument("--route", type=parse_route, action="append", required=True)
    arguments = parser.parse_args()
    proxy = FaultProxy(arguments.route, arguments.cluster_file, arguments.host)
    with suppress(KeyboardInterrupt):
        asyncio.run(proxy.serve(arguments.http_port))


if __name__ == "__main__":
    main()
