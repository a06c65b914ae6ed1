"""The groups of a cluster are those of each broker that answers; the others are named."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead_cli.client import group_listing
from fairlead_cli.client.group_listing import GroupListing, list_groups
from fairlead_cli.client.wire_call import LENGTH, receive_exactly
from fairlead_wire.errors import ErrorCode
from fairlead_wire.header import decode_request_header, encode_response_frame
from fairlead_wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from fairlead_wire.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)


@contextmanager
def broker(listed: ListGroupsResponse | None, *, newest: int = 5) -> Iterator[int]:
    """The port of one that lists these groups; None: it hangs, and its kernel takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server, listed, newest), daemon=True)
        if listed is not None:
            thread.start()
        yield server.getsockname()[1]
        if listed is not None:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(30)


def serve(server: socket.socket, listed: ListGroupsResponse, newest: int) -> None:
    """One request a connection, until the socket is shut."""
    offered = ApiVersionsResponse(api_keys=[ApiVersion(ListGroupsRequest.API_KEY, 0, newest)])
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            (size,) = LENGTH.unpack(receive_exactly(connection, LENGTH.size))
            header, _ = decode_request_header(memoryview(receive_exactly(connection, size)))
            is_list = header.api_key == ListGroupsRequest.API_KEY
            reply = encode_response_frame(
                header.api_key,
                header.api_version,
                header.correlation_id,
                listed if is_list else offered,
            )
            connection.sendall(b"".join(bytes(part) for part in reply))  # type: ignore[arg-type]


def admin_of(*ports: int) -> Any:
    brokers = {
        number: SimpleNamespace(id=number, host="127.0.0.1", port=port)
        for number, port in enumerate(ports)
    }
    return SimpleNamespace(list_topics=lambda **_: SimpleNamespace(brokers=brokers))


def listed(*groups: ListedGroup) -> ListGroupsResponse:
    return ListGroupsResponse(groups=list(groups))


def test_groups_of_all_brokers_come_by_name() -> None:
    first = listed(
        ListedGroup("b", "consumer", "PreparingRebalance", "Consumer"),
        ListedGroup("connectors", "connect", "Stable", "classic"),
    )
    second = listed(ListedGroup("a", "", "Empty", "classic"))
    with ExitStack() as stack:
        ports = [stack.enter_context(broker(each)) for each in (first, second)]
        assert list_groups(admin_of(*ports)) == (
            [
                GroupListing("a", "Empty", "classic", is_simple=True),
                GroupListing("b", "PreparingRebalance", "consumer", is_simple=False),
            ],
            [],
        )


def test_a_broker_of_older_versions_names_no_state() -> None:
    with broker(listed(ListedGroup("old", "consumer")), newest=2) as port:
        assert list_groups(admin_of(port)) == (
            [GroupListing("old", "Unknown", "classic", is_simple=False)],
            [],
        )


def test_a_broker_that_hangs_is_named_beside_what_the_others_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_listing, "PATIENCE_S", 60.0)
    monkeypatch.setattr(group_listing, "GRACE_S", 0.2)
    with ExitStack() as stack:
        hung = stack.enter_context(broker(None))
        well = stack.enter_context(broker(listed(ListedGroup("a", "consumer", "Stable"))))
        found, untold = list_groups(admin_of(hung, well))
        assert [each.group for each in found] == ["a"]
        assert untold == [f"broker 0 at 127.0.0.1:{hung} does not answer"]


def test_a_broker_that_refuses_is_told_not_hidden() -> None:
    refusing = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    with ExitStack() as stack:
        loading = stack.enter_context(broker(refusing))
        well = stack.enter_context(broker(listed(ListedGroup("a", "consumer", "Stable"))))
        found, untold = list_groups(admin_of(loading, well))
        assert [each.group for each in found] == ["a"]
        (reason,) = untold
        assert reason == "broker 0: it cannot list its groups: COORDINATOR_LOAD_IN_PROGRESS"
