"""A long answer has the bytes of the message that it stands for, in each version."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fairlead_broker.handlers.long_answer import PART_MAX, LongAnswer, is_long
from fairlead_wire.messages import (
    describe_acls,
    describe_client_quotas,
    describe_configs,
    describe_producers,
    describe_transactions,
    describe_user_scram_credentials,
    list_groups,
    list_transactions,
)

ANSWERS = (
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


def test_short_answers_and_refusals_are_not_long() -> None:
    short = describe_acls.DescribeAclsResponse(
        resources=[describe_acls.DescribeAclsResource()] * PART_MAX
    )
    refused = describe_client_quotas.DescribeClientQuotasResponse(entries=None)
    assert not is_long(short)
    assert not is_long(refused)
    assert not is_long(b"bytes")
