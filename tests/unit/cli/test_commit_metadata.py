"""What applications wrote beside their offsets, asked of a coordinator that may have moved."""

from typing import Any

import pytest

from fairlead_cli.client import commit_metadata
from fairlead_cli.client.commit_metadata import read_commit_metadata
from fairlead_cli.client.groups import GroupDescription
from fairlead_cli.client.places import Place
from fairlead_cli.errors import CliError
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)


def group_at(port: int) -> GroupDescription:
    return GroupDescription("g", "Empty", "classic", False, "", (1, "h", port), ())


TOLD = OffsetFetchResponse(
    topics=[
        OffsetFetchResponseTopic(
            "t",
            [
                OffsetFetchResponsePartition(0, 5, metadata="by hand\0"),
                OffsetFetchResponsePartition(1, 5, metadata=""),
                OffsetFetchResponsePartition(2, 5, metadata=None),
            ],
        )
    ]
)


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What brokers say, by port; the group is described as being at the second."""

    def set_answers(by_port: dict[int, OffsetFetchResponse]) -> None:
        def call(host: str, port: int, request: Any, version: int) -> OffsetFetchResponse:
            assert (host, version) == ("h", 5)
            assert isinstance(request, OffsetFetchRequest)
            assert (request.group_id, request.topics) == ("g", None)
            return by_port[port]

        monkeypatch.setattr(commit_metadata, "call_broker", call)

    monkeypatch.setattr(commit_metadata, "describe_group", lambda *_: group_at(2))
    monkeypatch.setattr(commit_metadata, "RETRY_PAUSE_S", 0.0)
    return set_answers


def test_partitions_without_any_are_left_out(answer: Any) -> None:
    answer({1: TOLD})
    assert read_commit_metadata(None, group_at(1)) == {Place("t", 0): "by hand"}


def test_a_coordinator_that_moved_is_looked_for(answer: Any) -> None:
    answer({1: OffsetFetchResponse(error_code=ErrorCode.NOT_COORDINATOR), 2: TOLD})
    assert read_commit_metadata(None, group_at(1)) == {Place("t", 0): "by hand"}


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "does not answer: COORDINATOR_LOAD_IN_PROGRESS"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "of group 'g': GROUP_AUTHORIZATION_FAILED"),
        (999, "error 999"),
    ],
)
def test_a_refusal_is_named(
    answer: Any, monkeypatch: pytest.MonkeyPatch, code: int, said: str
) -> None:
    monkeypatch.setattr(commit_metadata, "REQUEST_TIMEOUT_S", 0.0)
    answer({1: OffsetFetchResponse(error_code=code)})
    with pytest.raises(CliError, match=said):
        read_commit_metadata(None, group_at(1))
