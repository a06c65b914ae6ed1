"""The groups of a cluster are those of each broker that answers; the others are named."""

from contextlib import AbstractContextManager, ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from answering_broker import answering_broker

from fairlead_cli.client import survey
from fairlead_cli.client.group_listing import GroupListing, list_groups
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.list_groups import ListedGroup, ListGroupsResponse


def broker(listed: ListGroupsResponse | None, *, newest: int = 5) -> AbstractContextManager[int]:
    """The port of one that lists these groups; None: it hangs."""
    replies = None if listed is None else {ApiKey.LIST_GROUPS: listed}
    return answering_broker(replies, newest=newest)


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
    monkeypatch.setattr(survey, "PATIENCE_S", 60.0)
    monkeypatch.setattr(survey, "GRACE_S", 0.2)
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
