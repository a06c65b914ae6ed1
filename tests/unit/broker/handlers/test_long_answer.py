"""A long answer has the bytes of the message that it stands for, in each version."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fairlead_broker.handlers.long_answer import PART_MAX, LongAnswer, is_long
from fairlead_wire.messages import (
    consumer_group_describe,
    describe_acls,
    describe_client_quotas,
    describe_configs,
    describe_groups,
    describe_producers,
    describe_transactions,
    describe_user_scram_credentials,
    list_groups,
    list_transactions,
    offset_fetch,
)

ANSWERS: tuple[tuple[Any, ...], ...] = (
    (
        describe_acls.DescribeAclsResponse,
        {"error_message": None},
        lambda name: describe_acls.DescribeAclsResource(2, name, 3, []),
    ),
    (
        describe_client_quotas.DescribeClientQuotasResponse,
        {"error_message": None},
        lambda name: describe_client_quotas.EntryData(
            [describe_client_quotas.EntityData("user", name)], []
        ),
    ),
    (
        describe_configs.DescribeConfigsResponse,
        {},
        lambda name: describe_configs.DescribeConfigsResult(resource_name=name),
    ),
    (
        describe_producers.DescribeProducersResponse,
        {},
        describe_producers.TopicResponse,
    ),
    (
        describe_transactions.DescribeTransactionsResponse,
        {},
        lambda name: describe_transactions.TransactionState(transactional_id=name),
    ),
    (
        describe_user_scram_credentials.DescribeUserScramCredentialsResponse,
        {"error_message": None},
        describe_user_scram_credentials.DescribeUserScramCredentialsResult,
    ),
    (
        list_groups.ListGroupsResponse,
        {"error_code": 14},
        lambda name: list_groups.ListedGroup(name, "consumer"),
    ),
    (
        list_transactions.ListTransactionsResponse,
        {"unknown_state_filters": ["Lost", "Found"]},
        lambda name: list_transactions.TransactionState(name, 7, "Ongoing"),
    ),
)


@pytest.mark.parametrize("count", [PART_MAX + 1, 250, 300])
@pytest.mark.parametrize(
    ("kind", "fields", "make"), ANSWERS, ids=[each[0].__name__ for each in ANSWERS]
)
def test_its_bytes(kind: Any, fields: dict[str, Any], make: Any, count: int) -> None:
    lowest, highest = kind.VALID_VERSIONS
    for version in range(lowest, highest + 1):
        message = kind(**fields)
        elements = getattr(message, kind.__slots__[-1])
        elements += [make(f"name-{number}") for number in range(count)]
        assert is_long(message)
        answer = LongAnswer(message)
        assert len(list(answer.steps(version))) == -(-count // PART_MAX)
        assert b"".join(answer.encode(version)) == b"".join(message.encode(version))  # type: ignore[arg-type]
        # As a quota tells its client for how long it is held back.
        told = copy.copy(answer)
        told.throttle_time_ms = message.throttle_time_ms = 77
        assert b"".join(told.encode(version)) == b"".join(message.encode(version))  # type: ignore[arg-type]


def members(count: int) -> list[describe_groups.DescribedGroupMember]:
    return [
        describe_groups.DescribedGroupMember(f"m-{number}", None, "c", "/h", b"metadata", b"x" * 9)
        for number in range(count)
    ]


def group_of(name: str, count: int) -> describe_groups.DescribedGroup:
    return describe_groups.DescribedGroup(group_id=name, members=members(count))


def producers_of(index: int, count: int) -> describe_producers.PartitionResponse:
    entries = [describe_producers.ProducerState(number, 1, 2, 3, 4) for number in range(count)]
    return describe_producers.PartitionResponse(index, active_producers=entries)


def offsets_of(count: int) -> list[offset_fetch.OffsetFetchResponsePartitions]:
    return [offset_fetch.OffsetFetchResponsePartitions(each, 5, 7, "x") for each in range(count)]


NESTED: list[tuple[Any, range]] = [
    (
        describe_groups.DescribeGroupsResponse(
            groups=[group_of("a", 3), group_of("b", 3_001), group_of("c", 0), group_of("d", 1_050)]
        ),
        range(7),
    ),
    (
        describe_producers.DescribeProducersResponse(
            topics=[
                describe_producers.TopicResponse("few", [producers_of(0, 2)]),
                describe_producers.TopicResponse(
                    "many", [producers_of(0, 2), producers_of(1, 2_500), producers_of(2, 1)]
                ),
            ]
        ),
        range(1),
    ),
    (
        offset_fetch.OffsetFetchResponse(
            groups=[
                offset_fetch.OffsetFetchResponseGroup(
                    "g",
                    [
                        offset_fetch.OffsetFetchResponseTopics("t", bytes(16), offsets_of(2_345)),
                        offset_fetch.OffsetFetchResponseTopics("u", bytes(16), offsets_of(10)),
                    ],
                )
            ]
        ),
        range(8, 11),
    ),
    (
        offset_fetch.OffsetFetchResponse(
            topics=[
                offset_fetch.OffsetFetchResponseTopic(
                    "t",
                    [
                        offset_fetch.OffsetFetchResponsePartition(number, 5, 7, "x")
                        for number in range(2_345)
                    ],
                )
            ]
        ),
        range(1, 8),
    ),
    (
        consumer_group_describe.ConsumerGroupDescribeResponse(
            groups=[
                consumer_group_describe.DescribedGroup(
                    group_id="g",
                    members=[
                        consumer_group_describe.Member(
                            member_id=f"m-{number}",
                            assignment=consumer_group_describe.Assignment(
                                [consumer_group_describe.TopicPartitions(bytes(16), "t", [1, 2])]
                            ),
                        )
                        for number in range(1_500)
                    ],
                )
            ]
        ),
        range(2),
    ),
]


@pytest.mark.parametrize(
    ("message", "versions"), NESTED, ids=[type(each[0]).__name__ for each in NESTED]
)
def test_a_long_array_in_one_of_few_elements(message: Any, versions: range) -> None:
    assert is_long(message)
    for version in versions:
        answer = LongAnswer(message)
        assert len(list(answer.steps(version))) >= 1_500 // PART_MAX
        assert b"".join(answer.encode(version)) == b"".join(message.encode(version))  # type: ignore[arg-type]
        longest = max(len(each) for each in answer.encode(version))
        assert longest < sum(len(each) for each in answer.encode(version)) / 5


def test_short_answers_and_refusals_are_not_long() -> None:
    short = describe_acls.DescribeAclsResponse(
        resources=[describe_acls.DescribeAclsResource()] * PART_MAX
    )
    refused = describe_client_quotas.DescribeClientQuotasResponse(entries=None)
    assert not is_long(short)
    assert not is_long(refused)
    assert not is_long(b"bytes")
