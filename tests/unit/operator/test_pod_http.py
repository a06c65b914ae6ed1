"""Pods whose image users choose, and which answer in every way that hurts."""

import asyncio
import gzip
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlead_operator.pod_http import ANSWER_BYTES_MAX, PodAnswer, PodAnswerError, ask_pod

Reply = Callable[[asyncio.StreamWriter], Awaitable[None]]
TIMEOUT_S = 5.0


def ask(reply: Reply, *, timeout_s: float = TIMEOUT_S, **request: Any) -> tuple[PodAnswer, bytes]:
    """What is made of such a reply, and what was asked."""

    async def run() -> tuple[PodAnswer, bytes]:
        asked = b""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal asked
            asked = await reader.readuntil(b"\r\n\r\n")
            try:
                await reply(writer)
            except ConnectionError:
                pass  # it was hung up on, which is the point
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            return await ask_pod("127.0.0.1", port, "/", timeout_s=timeout_s, **request), asked

    return asyncio.run(run())


def saying(*pieces: bytes) -> Reply:
    async def reply(writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    return reply


def endless(head: bytes, piece: bytes) -> Reply:
    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(piece)
            await writer.drain()

    return reply


def answer(content: bytes, *, status: str = "200 OK", more: str = "") -> bytes:
    length = f"Content-Length: {len(content)}\r\n"
    return f"HTTP/1.1 {status}\r\n{length}{more}\r\n".encode() + content


def chunk(size: int) -> bytes:
    return b"%x\r\n%s\r\n" % (size, b"x" * size)


@pytest.mark.parametrize(
    "reply",
    [
        saying(answer(b'{"a": 1}')),
        saying(b"HTTP/1.0 200 OK\r\n\r\n", b'{"a":', b" 1}"),
        saying(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{"a": 1}\r\n0\r\n\r\n'),
        saying(b"HTTP/1.1 100 Continue\r\n\r\n", answer(b'{"a": 1}')),
    ],
    ids=["length", "until the end", "chunked", "continue"],
)
def test_every_honest_form_of_an_answer_is_read(reply: Reply) -> None:
    found, asked = ask(reply, headers={"Authorization": "Bearer x"})
    assert (found.status, found.json()) == (200, {"a": 1})
    assert asked.startswith(b"GET / HTTP/1.1\r\n")
    assert b"Authorization: Bearer x\r\n" in asked
    assert b"Connection: close\r\n" in asked


BIG = 1 << 20
ENDLESS = {
    "a body that says its length": endless(
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", b"x" * BIG
    ),
    "a body without a length": endless(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * BIG),
    "chunks": endless(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk(BIG)),
    "headers": endless(b"HTTP/1.1 200 OK\r\n", b"X-More: yes\r\n" * 1000),
    "one header": endless(b"HTTP/1.1 200 OK\r\nX-More: ", b"y" * BIG),
    "answers to come": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "further answers": endless(answer(b"{}"), answer(b"{}") * 1000),
}


@pytest.mark.parametrize("reply", ENDLESS.values(), ids=ENDLESS)
def test_an_answer_without_end_is_cut_off(reply: Reply) -> None:
    with pytest.raises(PodAnswerError, match=f"more than {ANSWER_BYTES_MAX} bytes"):
        ask(reply)


def test_an_answer_that_never_ends_is_not_waited_for() -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.02)

    with pytest.raises(PodAnswerError, match=r"no answer within 0\.3 s"):
        ask(drip, timeout_s=0.3)


def test_what_is_packed_stays_packed() -> None:
    bomb = gzip.compress(b" " * (64 << 20))
    assert len(bomb) < ANSWER_BYTES_MAX
    with pytest.raises(PodAnswerError, match="'gzip', which was not asked for"):
        ask(saying(answer(bomb, more="Content-Encoding: gzip\r\n")))


def test_nobody_is_sent_elsewhere() -> None:
    found, _ = ask(
        saying(answer(b"", status="302 Found", more="Location: http://127.0.0.1:1/secret\r\n"))
    )
    assert found.status == 302


@pytest.mark.parametrize(
    "content",
    [b"", b"no", b"[" * 100_000, b'{"a": NaN}', b'{"a": Infinity}', b"\xff\xfe", b"9" * 5000],
)
def test_what_is_no_json_is_said_to_be_none(content: bytes) -> None:
    found, _ = ask(saying(answer(content)))
    with pytest.raises(PodAnswerError, match="no JSON"):
        found.json()


@pytest.mark.parametrize(
    "reply",
    [
        saying(),
        saying(b"SSH-2.0-OpenSSH\r\n"),
        saying(b"HTTP/1.1 20 ?\r\n\r\n"),
        saying(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"),
        saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnot a size\r\n"),
        saying(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n"),
    ],
)
def test_what_is_no_http_is_an_error_in_words(reply: Reply) -> None:
    with pytest.raises(PodAnswerError):
        ask(reply)


def test_a_port_at_which_nobody_listens_is_told_apart() -> None:
    # Held, and not listened at: a port that was let go may be another process's by now.
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        with pytest.raises(PodAnswerError) as caught:
            asyncio.run(ask_pod("127.0.0.1", held.getsockname()[1], "/", timeout_s=TIMEOUT_S))
    assert caught.value.is_refused


def test_a_body_is_sent_as_json() -> None:
    async def echo(writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"{}"))

    _, asked = ask(echo, method="POST", body={"b": [1]})
    assert asked.startswith(b"POST / HTTP/1.1\r\n")
    length = len(json.dumps({"b": [1]}))
    assert f"Content-Length: {length}\r\n".encode() in asked
