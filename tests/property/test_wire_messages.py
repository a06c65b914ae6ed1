"""Every message in every version: round trips, two other implementations, and hostile bytes."""

import dataclasses
import io
import operator
import os
import random
import tracemalloc
import types
import typing
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

import kio.index
import kio.serial
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.static.constants import EntityType

from fairlead_wire.errors import LocalProtocolError, RemoteProtocolError
from fairlead_wire.message import Message, WireStruct
from fairlead_wire.messages import REQUESTS, RESPONSES
from fairlead_wire.segments import segments_size

MESSAGES = [table[key] for key in sorted(REQUESTS) for table in (REQUESTS, RESPONSES)]
# Values that the other implementations take in every field of the type: kio turns error codes
# into an enumeration and timestamps into dates.
INTEGERS = (0, 1, 5, 42, 100)
TEXTS = ("", "a", "flights-us", "ä" * 70, "x" * 200)
BLOBS = (b"", b"payload", bytes(300))
UUIDS = (bytes(16), bytes(range(16)))

# To a client an error in this reply means that its body is of version 0.
ERROR_OF_API_VERSIONS = frozenset({"ApiVersionsResponse.error_code"})

# What only Fairlead's brokers tell one another; the other implementations do not know it.
OWN_FIELDS = frozenset(
    {
        "WritableTxnMarkerTopic.leader_epochs",
        "ConsumerGroupHeartbeatRequest.asked_by",
        "ConsumerGroupHeartbeatRequest.asked_from",
    }
)

# How many damaged instances of each message and version; `make simulate` asks for more.
SEEDS = int(os.environ.get("FAIRLEAD_SEEDS", "3"))

Choose = Callable[[tuple[Any, ...]], Any]
P = ParamSpec("P")
R = TypeVar("R")


def remembered(function: Callable[P, R]) -> Callable[P, R]:
    """`cache`, but for its types: for mypy, classes whose instances compare are not hashable."""
    return typing.cast("Callable[P, R]", cache(function))


def title(message: type[Message]) -> str:
    return message.__name__


def in_every_version(message: type[Message], check: Callable[[type[Message], int], object]) -> int:
    """Make the check in all versions; a failure tells in which one it was.

    Return in how many it was made: a check that returns False had nothing to compare with.
    """
    made = 0
    for version in range(message.VALID_VERSIONS[0], message.VALID_VERSIONS[1] + 1):
        try:
            made += check(message, version) is not False
        except Exception as error:
            error.add_note(f"in version {version} of {message.__name__}")
            raise
    return made


@remembered
def hints(struct: type[Any]) -> dict[str, Any]:
    types_by_name = typing.get_type_hints(struct)
    return {each.name: types_by_name[each.name] for each in dataclasses.fields(struct)}


def build(struct: type[WireStruct], choose: Choose, left_out: frozenset[str]) -> Any:
    """An instance whose fields are chosen, but for those that keep their default."""
    return struct(
        **{
            name: build_value(hint, choose, left_out)
            for name, hint in hints(struct).items()
            if f"{struct.__name__}.{name}" not in left_out
        }
    )


def build_value(hint: Any, choose: Choose, left_out: frozenset[str]) -> Any:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        members = [each for each in typing.get_args(hint) if each is not types.NoneType]
        if len(members) > 1:
            return choose(BLOBS)
        return build_value(members[0], choose, left_out)
    if typing.get_origin(hint) is list:
        count = choose((0, 1, 2, 3))
        return [build_value(typing.get_args(hint)[0], choose, left_out) for _ in range(count)]
    if issubclass(hint, WireStruct):
        return build(hint, choose, left_out)
    values = {
        int: INTEGERS,
        str: TEXTS,
        bytes: UUIDS,
        bool: (False, True, False),
        float: (0.0, 1.5),
    }
    return choose(values[hint])


@remembered
def fields_left_out(message: type[Message], version: int) -> frozenset[str]:
    """The fields that the version refuses to carry, as the encoder names them."""
    refused: set[str] = set()
    # Between them, the second and the last choice differ from every default.
    for index in (1, -1):
        while True:
            full = build(message, operator.itemgetter(index), frozenset(refused))
            try:
                full.encode(version)
                break
            except LocalProtocolError as error:
                name, _, reason = str(error).partition(" is set")
                if not reason:
                    raise
                refused.add(name)
    return frozenset(refused)


def encoded(message: Message, version: int) -> bytes:
    return b"".join(typing.cast("list[bytes]", message.encode(version)))


def seeded(
    message: type[Message], version: int, count: int, *, is_kafkas: bool = False
) -> Iterator[bytes]:
    """Encodings of `count` instances, the same in every run; of Kafka's fields alone, if asked."""
    chooser = random.Random(f"{message.__name__} {version}")
    left_out = fields_left_out(message, version) | ERROR_OF_API_VERSIONS
    if is_kafkas:
        left_out |= OWN_FIELDS
    for _ in range(count):
        yield encoded(build(message, chooser.choice, left_out), version)


@pytest.mark.parametrize("message", MESSAGES, ids=title)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_message_survives_a_round_trip(message: type[Message], data: st.DataObject) -> None:
    version = data.draw(st.integers(*message.VALID_VERSIONS))
    left_out = fields_left_out(message, version)
    original = build(message, lambda values: data.draw(st.sampled_from(values)), left_out)
    segments = original.encode(version)
    body = b"".join(typing.cast("list[bytes]", segments))
    assert segments_size(segments) == len(body)
    decoded, position = message.decode(memoryview(b"head" + body), 4, version)
    assert position == 4 + len(body)
    assert encoded(decoded, version) == body
    again, _ = message.decode(memoryview(encoded(decoded, version)), 0, version)
    assert again == decoded


@pytest.mark.parametrize("message", MESSAGES, ids=title)
def test_default_instances_survive_a_round_trip(message: type[Message]) -> None:
    in_every_version(message, survives_with_defaults)


def survives_with_defaults(message: type[Message], version: int) -> None:
    body = encoded(message(), version)
    decoded, position = message.decode(memoryview(body), 0, version)
    assert (decoded, position) == (message(), len(body))


@pytest.mark.parametrize("message", MESSAGES, ids=title)
def test_kio_reads_the_same_and_writes_the_same(message: type[Message]) -> None:
    if not in_every_version(message, agrees_with_kio):
        pytest.skip("kio knows no version of it")


def agrees_with_kio(message: type[Message], version: int) -> bool:
    kind = EntityType.request if message.__name__.endswith("Request") else EntityType.response
    try:
        entity = kio.index.load_payload_module(message.API_KEY, version, kind)
    except kio.index.UnknownEntity:
        return False
    schema = getattr(entity, message.__name__)
    read, write = kio.serial.entity_reader(schema), kio.serial.entity_writer(schema)
    for body in seeded(message, version, 4, is_kafkas=True):
        value, size = read(body, 0)
        assert size == len(body)
        output = io.BytesIO()
        write(output, value)
        assert output.getvalue() == body
    return True


@remembered
def kafka_python_packages() -> list[types.ModuleType]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It reads its schemas by a deprecated function.
        return [
            import_module(f"kafka.protocol.{name}")
            for name in ("admin", "consumer", "metadata", "producer", "sasl")
        ]


def kafka_python_class(name: str) -> Any:
    classes = (getattr(package, name, None) for package in kafka_python_packages())
    return next((each for each in classes if each is not None), None)


def assert_same_fields(ours: Any, theirs: Any, path: str) -> None:
    """Compares by field name: equal bytes alone would not tell swapped fields."""
    if theirs is None or isinstance(theirs, set):
        return  # A field that the version does not carry, or a bit field that it takes apart.
    if isinstance(ours, WireStruct):
        for name in hints(type(ours)):
            if hasattr(theirs, name):
                assert_same_fields(getattr(ours, name), getattr(theirs, name), f"{path}.{name}")
    elif isinstance(ours, list):
        for index, (left, right) in enumerate(zip(ours, theirs, strict=True)):
            assert_same_fields(left, right, f"{path}[{index}]")
    elif isinstance(ours, bytes | memoryview):
        assert bytes(ours) == getattr(theirs, "bytes", theirs), path
    elif ours is not None:
        assert ours == theirs, path


@pytest.mark.parametrize("message", MESSAGES, ids=title)
def test_kafka_python_reads_the_same_fields_and_writes_the_same(message: type[Message]) -> None:
    if not in_every_version(message, agrees_with_kafka_python):
        pytest.skip("kafka-python knows no version of it")


def agrees_with_kafka_python(message: type[Message], version: int) -> bool:
    theirs = kafka_python_class(message.__name__)
    if theirs is None or not theirs.valid_versions[0] <= version <= theirs.valid_versions[1]:
        return False
    for body in seeded(message, version, 4, is_kafkas=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            other = theirs.decode(body, version=version)
            other._header = None
            assert other.encode(version=version) == body
        decoded, _ = message.decode(memoryview(body), 0, version)
        assert_same_fields(decoded, other, message.__name__)
    return True


def decode_hostile(message: type[Message], version: int, body: bytes) -> None:
    """Decodes bytes that may be anything: either they are a message, or they are refused."""
    try:
        _, position = message.decode(memoryview(body), 0, version)
    except RemoteProtocolError as error:
        assert str(error)
    else:
        assert 0 <= position <= len(body)


@pytest.mark.parametrize("message", MESSAGES, ids=title)
def test_damaged_bytes_are_refused_or_read(message: type[Message]) -> None:
    in_every_version(message, refuses_or_reads_damage)


def refuses_or_reads_damage(message: type[Message], version: int) -> None:
    chooser = random.Random(f"damage {message.__name__} {version}")
    for body in seeded(message, version, SEEDS):
        for _ in range(10):
            decode_hostile(message, version, body[: chooser.randrange(len(body) + 1)])
            damaged = bytearray(body)
            for _ in range(chooser.randrange(1, 4)):
                if damaged:
                    damaged[chooser.randrange(len(damaged))] = chooser.choice(
                        (0, 1, 127, 128, 255, chooser.randrange(256))
                    )
            decode_hostile(message, version, bytes(damaged))
    for size in (0, 1, 7, 40, 400):
        decode_hostile(message, version, chooser.randbytes(size))
        decode_hostile(message, version, b"\xff" * size)
        decode_hostile(message, version, bytes(size))


@pytest.mark.parametrize("message", MESSAGES, ids=title)
def test_every_proper_prefix_is_refused(message: type[Message]) -> None:
    in_every_version(message, refuses_every_prefix)


def refuses_every_prefix(message: type[Message], version: int) -> None:
    body = next(seeded(message, version, 1))[:2000]
    _, size = message.decode(memoryview(body), 0, version) if len(body) < 2000 else (None, 2000)
    for end in range(0, size, 1 + size // 40):
        with pytest.raises(RemoteProtocolError):
            message.decode(memoryview(body[:end]), 0, version)


@pytest.mark.parametrize("message", MESSAGES, ids=title)
def test_memory_is_bounded_by_the_bytes_received(message: type[Message]) -> None:
    version = message.VALID_VERSIONS[1]
    chooser = random.Random(f"memory {message.__name__}")
    bodies = [chooser.randbytes(200), b"\x7f" * 200, b"\x00\x7f\xff\xff" * 50, b"\xff" * 200]
    for body in bodies:
        decode_hostile(message, version, body)
        tracemalloc.start()
        decode_hostile(message, version, body)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 64 * 1024, f"{peak} bytes for a body of {len(body)}"
