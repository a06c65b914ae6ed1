"""HTTP requests to pods whose image users choose, with bounds on bytes, time and addresses.

An HTTP client bounds the body of an answer at best. It accepts headers without end, reads what
comes unasked on a connection that it keeps, follows redirects to where the pod itself may not go,
and unpacks a few bytes into gigabytes. So here one connection serves one request, everything that
arrives is counted before anything reads it, and the standard library then parses it.
"""

import asyncio
import http.client
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from fairlead_model.host_address import join_address

ANSWER_BYTES_MAX: Final = 262_144
"""Bytes of an answer, with its headers, where nothing larger is asked for."""
_READ_BYTES: Final = 65_536
_JSON: Final = "application/json"


class PodAnswerError(Exception):
    """A pod does not answer, or its answer is malformed; the text says how."""

    def __init__(self, message: str, *, is_refused: bool = False) -> None:
        super().__init__(message)
        self.is_refused = is_refused
        """Whether no process listens at its port."""


@dataclass(frozen=True, slots=True)
class PodAnswer:
    """The answer of a pod."""

    status: int
    content: bytes

    def json(self) -> Any:
        """Read it as JSON; PodAnswerError if it is something else."""
        try:
            return json.loads(self.content, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise PodAnswerError(f"an answer that is no JSON: {error}") from error


async def ask_pod(
    host: str,
    port: int,
    path: str,
    *,
    timeout_s: float,
    method: str = "GET",
    body: object = None,
    headers: Mapping[str, str] | None = None,
    bytes_max: int = ANSWER_BYTES_MAX,
) -> PodAnswer:
    """Ask a pod at an IP address; PodAnswerError if it did not answer in time and in bounds."""
    place = join_address(host, port)
    request = _build_request(method, path, body, {"Host": place, **(headers or {})})
    try:
        async with asyncio.timeout(timeout_s):
            received = await _exchange(host, port, request, bytes_max)
        return _parse(received, method)
    except TimeoutError as error:
        raise PodAnswerError(f"no answer within {timeout_s:g} s") from error
    except ConnectionRefusedError as error:
        raise PodAnswerError(str(error), is_refused=True) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise PodAnswerError(repr(error)) from error


def _build_request(method: str, path: str, body: object, headers: Mapping[str, str]) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    lines = {
        "Accept": _JSON,
        "Accept-Encoding": "identity",
        "Connection": "close",
        "Content-Length": str(len(content)),
        **({} if body is None else {"Content-Type": _JSON}),
        **headers,
    }
    head = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in lines.items())]
    return "\r\n".join([*head, "", ""]).encode("ascii") + content


async def _exchange(host: str, port: int, request: bytes, bytes_max: int) -> bytes:
    """Send, and receive until the other side closes."""
    reader, writer = await asyncio.open_connection(host, port, limit=_READ_BYTES)
    try:
        writer.write(request)
        await writer.drain()
        received = bytearray()
        while piece := await reader.read(_READ_BYTES):
            received += piece
            if len(received) > bytes_max:
                raise PodAnswerError(f"an answer of more than {bytes_max} bytes")
        return bytes(received)
    finally:
        writer.transport.abort()


def _parse(received: bytes, method: str) -> PodAnswer:
    response = http.client.HTTPResponse(
        _Received(received),  # type: ignore[arg-type]  # all that it asks of a socket
        method=method,
    )
    response.begin()
    coding = response.getheader("Content-Encoding", "identity")
    if coding != "identity":
        raise PodAnswerError(f"an answer in {coding[:32]!r}, which was not asked for")
    return PodAnswer(response.status, response.read())


class _Received:
    """A socket whose bytes have all been read."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._content)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")
