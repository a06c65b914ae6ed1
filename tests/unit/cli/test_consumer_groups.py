"""Groups of KIP-848's protocol: what their coordinator says beyond librdkafka, and how it shows."""

from dataclasses import replace
from typing import Any

import pytest
from answering_broker import answering_broker

from fairlead_cli.client.consumer_groups import GroupProgress, MemberProgress, read_progress
from fairlead_cli.client.groups import GroupDescription, Member, add_progress
from fairlead_cli.client.places import Place
from fairlead_cli.group.describe import build_document, print_members, print_state
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    TopicPartitions,
)
from fairlead_wire.messages.consumer_group_describe import Member as DescribedMember

KEY = ApiKey.CONSUMER_GROUP_DESCRIBE
HAS = tuple(Place("orders", number) for number in range(4))


def described(member_type: int = 1) -> ConsumerGroupDescribeResponse:
    target = Assignment([TopicPartitions(b"o" * 16, "orders", [1, 0])])
    member = DescribedMember(
        member_id="m",
        member_epoch=4,
        subscribed_topic_names=["returns", "orders"],
        subscribed_topic_regex="o.*",
        target_assignment=target,
        member_type=member_type,
    )
    group = DescribedGroup(
        group_id="g",
        group_state="Reconciling",
        group_epoch=6,
        assignment_epoch=5,
        members=[member],
    )
    gone = DescribedGroup(group_id="gone", error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    return ConsumerGroupDescribeResponse(groups=[group, gone])


PROGRESS = MemberProgress(4, "consumer", ("orders", "returns"), "o.*", HAS[:2])
MEMBER = Member("m", None, "app", "10.0.0.7", HAS)


def group_at(port: int) -> GroupDescription:
    """As librdkafka gives it, which has no name for the state."""
    place = (1, "127.0.0.1", port)
    return GroupDescription("g", "Unknown", "consumer", False, "uniform", place, (MEMBER,))


def test_the_coordinator_tells_states_epochs_and_targets() -> None:
    with answering_broker({KEY: described()}, newest=1) as port:
        progress = read_progress("127.0.0.1", port, ["g", "gone"])
        (group,) = add_progress([group_at(port)])
    assert progress == {"g": GroupProgress("Reconciling", 6, 5, {"m": PROGRESS})}
    assert group == replace(
        group_at(port),
        state="Reconciling",
        members=(replace(MEMBER, progress=PROGRESS),),
        progress=progress["g"],
    )


def test_who_speaks_which_protocol_is_told_since_version_1() -> None:
    with answering_broker({KEY: described(member_type=0)}, newest=1) as port:
        assert read_progress("127.0.0.1", port, ["g"])["g"].members["m"].protocol == "classic"
    with answering_broker({KEY: described(member_type=0)}, newest=0) as port:
        assert read_progress("127.0.0.1", port, ["g"])["g"].members["m"].protocol is None


def test_only_coordinators_of_such_groups_are_asked_and_only_if_they_can_tell() -> None:
    with answering_broker({}) as port:
        assert add_progress([group_at(port)]) == [group_at(port)]
    # Nobody listens on the port any more.
    classic = replace(group_at(port), kind="classic")
    nowhere = replace(group_at(port), coordinator=None)
    assert add_progress([classic, nowhere]) == [classic, nowhere]


@pytest.fixture
def reconciling() -> GroupDescription:
    progress = GroupProgress("Reconciling", 6, 5, {"m": PROGRESS})
    member = replace(MEMBER, progress=PROGRESS)
    other = replace(MEMBER, member_id="n", partitions=())
    return replace(group_at(1), state="Reconciling", members=(member, other), progress=progress)


def test_json_says_which_protocol_and_how_far_it_is(reconciling: GroupDescription) -> None:
    document = build_document(reconciling, [])
    keys = ("protocol", "type", "state", "groupEpoch", "assignmentEpoch")
    assert [document[key] for key in keys] == ["consumer", "consumer", "Reconciling", 6, 5]
    first, second = document["members"]
    assert first["epoch"] == 4
    assert first["protocol"] == "consumer"
    assert (first["subscribedTopics"], first["subscribedPattern"]) == (["orders", "returns"], "o.*")
    assert first["target"] == [place._asdict() for place in HAS[:2]]
    assert second.keys() == first.keys()
    assert second["target"] is None
    classic = build_document(replace(reconciling, kind="classic", progress=None), [])
    assert (classic["protocol"], classic["groupEpoch"]) == ("classic", None)


def shown(group: GroupDescription, capsys: Any) -> list[list[str]]:
    print_state(group, [])
    print_members(group, is_full=True)
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_tables_show_epochs_and_what_is_on_its_way(
    reconciling: GroupDescription, capsys: Any
) -> None:
    lines = shown(reconciling, capsys)
    assert ["epoch", "6,", "assigned", "for", "5"] in lines
    assert [*["member", "client", "host", "epoch", "count", "partitions", "target"]] in lines
    assert [*["m", "app", "10.0.0.7", "4", "4", "orders:", "0-3", "orders:", "0-1"]] in lines
    assert [*["n", "app", "10.0.0.7", "-", "0", "none:", "idle", "-"]] in lines


def test_tables_of_classic_groups_are_as_they_were(capsys: Any) -> None:
    group = replace(group_at(1), kind="classic", state="Stable")
    lines = shown(group, capsys)
    assert [*["member", "client", "host", "count", "partitions"]] in lines
    assert not [line for line in lines if line[:1] == ["epoch"]]


def test_the_name_of_an_assignor_cannot_rewrite_a_terminal(
    reconciling: GroupDescription, capsys: Any
) -> None:
    """Members of a classic group may call it whatever they like."""
    print_state(replace(reconciling, assignor="\x1b]0;title\x07"), [])
    assert r"(consumer, \x1b]0;title\x07)" in capsys.readouterr().out
