"""ApiVersions: what is told is what is registered, in every version and for unknown ones."""

import struct
from collections.abc import Callable

import pytest
from live_broker import FrameClient, LiveBroker

from fairlead_broker.api_registry import HANDLERS
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.api_versions import ApiVersionsRequest

Connect = Callable[..., FrameClient]


@pytest.mark.parametrize("version", range(5))
def test_what_is_told_is_what_is_registered(connect: Connect, version: int) -> None:
    response = connect().call(ApiVersionsRequest("kcat", "1.7-0"), version)
    told = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    assert told == {
        key: handler.advertised for key, handler in HANDLERS.items() if key != ApiKey.ENVELOPE
    }
    assert told[0] == (0, 13), "librdkafka before 2.11 compresses only if Produce begins at 0"


@pytest.mark.parametrize(("version", "supported"), [(3, None), (4, (0, 2))])
def test_transactions_of_version_2_are_in_force(
    connect: Connect, version: int, supported: tuple[int, int] | None
) -> None:
    """Java clients decide by the finalized level, and reject a supported level 0 in version 3."""
    response = connect().call(ApiVersionsRequest("apache-kafka-java", "4.3.1"), version)
    told = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
    assert told.get("transaction.version") == supported
    finalized = {each.name: each for each in response.finalized_features}["transaction.version"]
    assert (finalized.min_version_level, finalized.max_version_level) == (2, 2)
    assert response.finalized_features_epoch >= 0


@pytest.mark.parametrize("version", range(3))
def test_older_clients_are_told_no_features(connect: Connect, version: int) -> None:
    response = connect().call(ApiVersionsRequest("a", "1"), version)
    assert response.supported_features == response.finalized_features == []


def test_brokers_are_told_their_wider_range(live: LiveBroker) -> None:
    with FrameClient(live.internal_port) as broker:
        response = broker.call(ApiVersionsRequest("broker", "1"), 3)
    told = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    assert told[1] == (4, 17)


def test_an_unknown_version_is_answered_in_version_0(connect: Connect) -> None:
    client = connect()
    for version, correlation_id in ((99, 7), (5, 8), (-1, 9)):
        body = struct.pack(">hhih", 18, version, correlation_id, -1) + b"whatever follows"
        client.socket.sendall(struct.pack(">i", len(body)) + body)
        assert client.receive_frame() == struct.pack(
            ">ihihhh", correlation_id, ErrorCode.UNSUPPORTED_VERSION, 1, 18, 0, 4
        )
    assert client.call(ApiVersionsRequest("a", "1"), 4).error_code == 0


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("a", ""), ("-a", "1"), ("a b", "1")])
def test_software_names_are_checked(connect: Connect, name: str, version: str) -> None:
    response = connect().call(ApiVersionsRequest(name, version), 3)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert response.api_keys == []
