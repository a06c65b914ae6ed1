"""Every API of a real broker process, with requests that are well formed and make no sense.

Fields take values that hurry past checks: empty, huge, negative, names that are paths. Some frames
are damaged as well. The broker must go on, and log no exception of its own.
"""

import dataclasses
import random
import socket
import struct
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hostile_bytes import mutate, provoke
from local_cluster import Cli, take_cluster_ports
from waiting import DEADLINE_S

from fairlead_wire.errors import LocalProtocolError
from fairlead_wire.header import decode_response, encode_request_frame
from fairlead_wire.messages import REQUESTS
from fairlead_wire.messages.api_versions import ApiVersionsRequest

INTS = (0, 1, -1, 2, 3, 100, 127)
NAMES = ("fuzz", "a", "", "..", "../../etc", "__consumer_offsets", "x" * 300, "é\n", "0")
REQUESTS_PER_SEED = 700
MEMORY_MAX = 150 << 20
Ranges = dict[int, tuple[int, int]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    port, http_port = take_cluster_ports()
    cli = Cli(Path(tmp_path_factory.mktemp("cluster")) / "data", port, http_port)
    assert cli.up("--brokers", "1").code == 0
    yield cli
    cli.close()


def served(port: int) -> Ranges:
    """What the broker says it serves; also the proof that it serves."""
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as sock:
        segments = encode_request_frame(18, 0, 1, "fuzz", ApiVersionsRequest())
        sock.sendall(b"".join(bytes(segment) for segment in segments))  # type: ignore[arg-type]
        (size,) = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
        _, response = decode_response(memoryview(sock.recv(size, socket.MSG_WAITALL)), 18, 0)
    keys: Any = response.api_keys  # type: ignore[attr-defined]
    return {each.api_key: (each.min_version, each.max_version) for each in keys}


def element_type(annotation: Any) -> Any:
    """The dataclass or primitive in a `list[…]` or `list[…] | None`."""
    for argument in typing.get_args(annotation):
        if argument is type(None):
            continue
        return element_type(argument) if typing.get_origin(argument) else argument
    return None


def scramble(message: Any, chance: random.Random, depth: int = 0) -> Any:
    """Give every field of a message some value of its type."""
    hints = typing.get_type_hints(type(message))
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if isinstance(value, list):
            kind = element_type(hints[field.name])
            count = chance.randrange(3) if depth < 4 else 0
            value = [scalar(kind, chance, depth) for _ in range(count)]
        elif isinstance(value, bool | int | str):
            value = scalar(type(value), chance, depth)
        elif value is None and "str" in str(field.type):
            value = chance.choice((None, *NAMES))
        setattr(message, field.name, value)
    return message


def scalar(kind: Any, chance: random.Random, depth: int) -> Any:
    if dataclasses.is_dataclass(kind):
        return scramble(kind(), chance, depth + 1)  # type: ignore[operator]
    if kind is bool:
        return chance.random() < 0.5
    if kind is int:
        return chance.choice(INTS)
    return chance.choice(NAMES) if kind is str else chance.randbytes(16)


def hostile_request(ranges: Ranges, chance: random.Random) -> bytes:
    api_key = chance.choice(list(ranges))
    lowest, highest = ranges[api_key]
    while True:
        message = scramble(REQUESTS[api_key](), chance)
        version = chance.randint(lowest, highest)
        try:
            segments = encode_request_frame(api_key, version, 1, "fuzz", message)
        except LocalProtocolError:
            continue  # This version can't say that: take other values.
        frame = b"".join(bytes(segment) for segment in segments)  # type: ignore[arg-type]
        return mutate(frame, chance) if chance.random() < 0.5 else frame


@pytest.mark.parametrize("seed", range(3))
def test_nonsense_of_every_api_is_survived(cluster: Cli, seed: int) -> None:
    chance = random.Random(seed)
    ranges = served(cluster.port)
    answered = sum(
        provoke(cluster.port, hostile_request(ranges, chance)) > 0 for _ in range(REQUESTS_PER_SEED)
    )
    assert answered > REQUESTS_PER_SEED // 5
    assert served(cluster.port) == ranges
    log = (cluster.data / "logs" / "broker-0.log").read_text()
    assert "Traceback" not in log, log[log.index("Traceback") - 300 :][:3000]
    (broker,) = cluster.ok("status", "-o", "json").json["brokers"]
    assert broker["state"] == "running"
    assert psutil.Process(broker["pid"]).memory_info().rss < MEMORY_MAX
