"""A tunnel to the real API server that a test can cut, and a kubeconfig that uses it."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import yaml

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter


class SeveredApi:
    """Runs in a thread; `cut` ends all connections and refuses new ones until `mend`."""

    def __init__(self, directory: Path) -> None:
        self.kubeconfig = directory / "kubeconfig"
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._writers: set[StreamWriter] = set()
        self._is_cut = False

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(10)

    def cut(self) -> None:
        self._is_cut = True
        self._loop.call_soon_threadsafe(self._abort)

    def mend(self) -> None:
        self._is_cut = False

    def _abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        config = _read_kubeconfig()
        context = next(
            each["context"]
            for each in config["contexts"]
            if each["name"] == config["current-context"]
        )
        entry = next(each for each in config["clusters"] if each["name"] == context["cluster"])
        target = urlsplit(entry["cluster"]["server"])
        self._target = (target.hostname, target.port or 443)
        server = await asyncio.start_server(self._tunnel, "127.0.0.1", 0)
        entry["cluster"]["server"] = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self.kubeconfig.write_text(yaml.safe_dump(config))
        self._ready.set()
        await self._stopped.wait()
        server.close()
        self._abort()
        await asyncio.sleep(0)

    async def _tunnel(self, reader: StreamReader, writer: StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        there_reader, there = await asyncio.open_connection(*self._target)
        ends = {writer, there}
        self._writers |= ends
        try:
            await asyncio.gather(_copy(reader, there), _copy(there_reader, writer))
        finally:
            self._writers -= ends
            for end in ends:
                end.transport.abort()


def _read_kubeconfig() -> dict[str, Any]:
    path = Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    config: dict[str, Any] = yaml.safe_load(path.read_text())
    return config


async def _copy(source: StreamReader, target: StreamWriter) -> None:
    try:
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
    except ConnectionError:
        pass
    finally:
        target.transport.abort()
