"""Golden frames: the traps that break real clients."""

import pytest

from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from fairlead_wire.header import (
    RequestHeader,
    decode_request_header,
    decode_response,
    encode_request_frame,
    encode_response_frame,
)
from fairlead_wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from fairlead_wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fairlead_wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from fairlead_wire.segments import Segment


def frame(segments: list[Segment]) -> bytes:
    return b"".join(segments)  # type: ignore[arg-type]


def test_an_unknown_version_of_api_versions_gets_a_body_of_version_0() -> None:
    refusal = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(ApiKey.API_VERSIONS, 0, 4)],
    )
    assert frame(encode_response_frame(18, 0, 7, refusal)) == bytes.fromhex(
        "00000010 00000007 0023 00000001 0012 0000 0004"
    )


def test_that_refusal_is_understood_whatever_version_was_asked() -> None:
    body = memoryview(bytes.fromhex("00000007 0023 00000001 0012 0000 0004"))
    correlation_id, message = decode_response(body, ApiKey.API_VERSIONS, 4)
    assert correlation_id == 7
    assert isinstance(message, ApiVersionsResponse)
    assert message.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert message.api_keys == [ApiVersion(18, 0, 4)]


def test_replies_of_api_versions_keep_header_v0_when_flexible() -> None:
    reply = ApiVersionsResponse(api_keys=[ApiVersion(18, 0, 4)])
    encoded = frame(encode_response_frame(18, 3, 7, reply))
    assert encoded == bytes.fromhex("00000013 00000007 0000 02 0012 0000 0004 00 00000000 00")
    assert decode_response(memoryview(encoded)[4:], 18, 3) == (7, reply)


def test_other_flexible_replies_have_header_v1() -> None:
    plain = frame(encode_response_frame(ApiKey.HEARTBEAT, 3, 9, HeartbeatResponse(0, 27)))
    flexible = frame(encode_response_frame(ApiKey.HEARTBEAT, 4, 9, HeartbeatResponse(0, 27)))
    assert plain == bytes.fromhex("0000000a 00000009 00000000 001b")
    assert flexible == bytes.fromhex("0000000c 00000009 00 00000000 001b 00")


def test_apis_that_are_never_flexible_keep_header_v0() -> None:
    reply = SaslHandshakeResponse(33, ["PLAIN"])
    encoded = frame(encode_response_frame(ApiKey.SASL_HANDSHAKE, 1, 2, reply))
    assert encoded == bytes.fromhex("00000011 00000002 0021 00000001 0005") + b"PLAIN"


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "ä"])
@pytest.mark.parametrize(
    ("api_key", "version", "request_message"),
    [
        (ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest("PLAIN")),
        (ApiKey.HEARTBEAT, 3, HeartbeatRequest("g", 1, "m")),
        (ApiKey.HEARTBEAT, 4, HeartbeatRequest("g", 1, "m")),
        (ApiKey.API_VERSIONS, 3, ApiVersionsRequest("fairlead", "0.1")),
    ],
)
def test_request_frames_are_read_back(
    client_id: str | None, api_key: ApiKey, version: int, request_message: HeartbeatRequest
) -> None:
    encoded = frame(encode_request_frame(api_key, version, -5, client_id, request_message))
    assert int.from_bytes(encoded[:4]) == len(encoded) - 4
    buffer = memoryview(encoded)[4:]
    header, position = decode_request_header(buffer)
    assert header == RequestHeader(api_key, version, -5, client_id)
    message, end = type(request_message).decode(buffer, position, version)
    assert (message, end) == (request_message, len(buffer))


def test_client_id_is_not_compact_and_header_tags_are_skipped() -> None:
    header = bytes.fromhex("0012 0003 00000001 0002 6162 01 05 02 ffff")
    decoded, position = decode_request_header(memoryview(header + b"body"))
    assert decoded == RequestHeader(18, 3, 1, "ab")
    assert position == len(header)


def test_headers_of_unknown_apis_and_versions_are_read_as_far_as_they_are_known() -> None:
    unknown = memoryview(bytes.fromhex("00c8 0000 00000003 ffff") + b"anything")
    assert decode_request_header(unknown) == (RequestHeader(200, 0, 3, None), 10)
    newer = memoryview(bytes.fromhex("0012 0063 00000003 0001 78 00"))
    assert decode_request_header(newer) == (RequestHeader(18, 99, 3, "x"), 12)


@pytest.mark.parametrize(
    "damaged",
    [
        "",
        "0012 0003 0000",
        "0012 0003 00000001 fffe",
        "0012 0003 00000001 0005 6162",
        "0012 0003 00000001 0002 ffff 00",
        "0012 0003 00000001 ffff",
        "0012 0003 00000001 ffff 02 01 00 01 00",
        "0012 0003 00000001 ffff 01 01 7f",
    ],
)
def test_damaged_request_headers_are_refused(damaged: str) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_request_header(memoryview(bytes.fromhex(damaged)))


def test_damaged_replies_are_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        decode_response(memoryview(b"\0\0"), ApiKey.HEARTBEAT, 4)
    with pytest.raises(RemoteProtocolError, match="behind the response"):
        decode_response(memoryview(bytes.fromhex("00000009 00000000 001b 00")), ApiKey.HEARTBEAT, 3)


def test_a_header_that_does_not_fit_is_our_own_error() -> None:
    with pytest.raises(LocalProtocolError):
        encode_request_frame(ApiKey.HEARTBEAT, 4, 2**31, None, HeartbeatRequest())
