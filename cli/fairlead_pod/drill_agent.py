"""The pod of a FailoverDrill: load, measurements and verdict, over HTTP for the operator.

GET  /healthz            answers
GET  /state              everything (`AgentDrill.as_json`)
POST /runs/N             {"brokerIds", "memo"}: the fault comes next
POST /runs/N/injected    the fault was done
POST /runs/N/end         the next run may begin
POST /runs/N/forget      the run cannot be used
POST /verify             stop writing and read everything back

All but /healthz require the token of the drill. The pod needs no credentials, of Kubernetes or
others. It ends on SIGTERM, or after ten minutes without a request, and deletes its topic then.
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from fairlead_cli.client.access import note_client_file
from fairlead_cli.client.connection import build_admin
from fairlead_cli.drill.load import DrillLoad, LoadPlan
from fairlead_cli.drill.watch import ClusterWatch
from fairlead_cli.errors import CliError, ExitCode
from fairlead_model.host_address import split_address
from fairlead_pod.drill_load import AgentDrill

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TOKEN_VARIABLE = "FAIRLEAD_DRILL_TOKEN"  # noqa: S105
SILENCE_S_MAX = 600.0
WATCH_INTERVAL_S = 1.0


class AgentServer:
    """The HTTP server; `asked_at` is the time of the last request."""

    def __init__(self, drill: AgentDrill, token: str) -> None:
        self.drill = drill
        self.asked_at = time.monotonic()
        self._token = token

    def build_app(self) -> web.Application:
        """Build the routes and the check of the token."""

        @web.middleware
        async def guard(
            request: web.Request,
            handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
        ) -> web.StreamResponse:
            return await self._guard(request, handler)

        app = web.Application(middlewares=[guard])
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/state", self._state)
        app.router.add_post("/runs/{number}", self._begin)
        app.router.add_post("/runs/{number}/{act:injected|end|forget}", self._act)
        app.router.add_post("/verify", self._verify)
        return app

    async def _guard(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        if request.path != "/healthz":
            given = request.headers.get("Authorization", "")
            if not hmac.compare_digest(
                given.encode(errors="surrogateescape"), f"Bearer {self._token}".encode()
            ):
                return web.json_response({"error": "this needs the drill's token"}, status=401)
            self.asked_at = time.monotonic()
        try:
            return await handler(request)
        except CliError as error:
            return web.json_response({"error": error.message}, status=409)
        except (ValueError, KeyError, TypeError) as error:
            return web.json_response({"error": f"no such request: {error!r}"}, status=400)

    async def _health(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _state(self, _request: web.Request) -> web.Response:
        return web.json_response(self.drill.as_json())

    async def _begin(self, request: web.Request) -> web.Response:
        asked = await request.json()
        broker_ids = {int(broker_id) for broker_id in asked["brokerIds"]}
        self.drill.begin(int(request.match_info["number"]), broker_ids, dict(asked["memo"]))
        return await self._state(request)

    async def _act(self, request: web.Request) -> web.Response:
        acts = {
            "injected": self.drill.note_injected,
            "end": self.drill.end,
            "forget": self.drill.forget,
        }
        acts[request.match_info["act"]](int(request.match_info["number"]))
        return await self._state(request)

    async def _verify(self, request: web.Request) -> web.Response:
        self.drill.verify()
        return await self._state(request)


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the arguments that the operator writes into the pod's manifest."""
    parser = argparse.ArgumentParser(prog="python -m fairlead_pod.drill_agent")
    parser.add_argument("--bootstrap", required=True, help="HOST:PORT,…")
    parser.add_argument("--client-config", help="how to log in: a file of librdkafka's settings")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--replication-factor", type=int, required=True)
    parser.add_argument("--rate", type=int, required=True, help="records a second")
    parser.add_argument("--record-size", type=int, required=True, help="bytes")
    parser.add_argument("--http-host", help="address to listen on; all by default")
    parser.add_argument("--http-port", type=int, default=8080)
    return parser.parse_args(arguments)


def build_drill(options: argparse.Namespace) -> AgentDrill:
    """Return a drill that is not started yet."""
    if options.client_config is not None:
        note_client_file(Path(options.client_config))
    addresses = [split_address(address) for address in options.bootstrap.split(",")]
    plan = LoadPlan(
        topic=options.topic,
        bootstrap=options.bootstrap,
        partitions=options.partitions,
        replication_factor=options.replication_factor,
        rate=options.rate,
        record_size=options.record_size,
    )
    return AgentDrill(
        DrillLoad(plan, build_admin(plan.bootstrap), ClusterWatch(plan.topic, addresses))
    )


async def serve(options: argparse.Namespace, token: str) -> int:
    """Serve until SIGTERM or too long a time without requests."""
    drill = build_drill(options)
    server = AgentServer(drill, token)
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    runner = web.AppRunner(server.build_app(), access_log=None)
    await runner.setup()
    working = asyncio.create_task(drill.run())
    try:
        await web.TCPSite(runner, options.http_host, options.http_port).start()
        print(f"ready drill topic={options.topic} http={options.http_port}", flush=True)
        await wait_for_end(server, ending, working)
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        try:
            await drill.clean_up()
        finally:
            await runner.cleanup()
    return ExitCode.OK if ending.is_set() else ExitCode.FAILED


async def wait_for_end(
    server: AgentServer, ending: asyncio.Event, working: asyncio.Task[None]
) -> None:
    """Return when the process has to end; its own error ends it with a traceback."""
    while not ending.is_set():
        if working.done() and working.exception() is not None:
            await working
        if time.monotonic() - server.asked_at > SILENCE_S_MAX:
            print("nobody has asked anything for too long", file=sys.stderr, flush=True)
            return
        try:
            async with asyncio.timeout(WATCH_INTERVAL_S):
                await ending.wait()
        except TimeoutError:
            continue


def main(arguments: list[str] | None = None) -> int:
    """Return exit code 0 if it was asked to end."""
    token = os.environ.get(TOKEN_VARIABLE, "")
    if not token:
        print(f"{TOKEN_VARIABLE} is not set", file=sys.stderr)
        return ExitCode.USAGE
    try:
        return asyncio.run(serve(parse_arguments(arguments), token))
    except CliError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return ExitCode.FAILED


if __name__ == "__main__":
    sys.exit(main())
