"""Which of several namespaces are served while some of them refuse it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from fairlead_kube.errors import ApiError, ApiUnavailableError
from fairlead_operator.active_operator import closed_of
from fairlead_operator.served_namespaces import find_served, wait_for_another_set
from fairlead_operator.settings import read_settings

if TYPE_CHECKING:
    from fairlead_kube.kinds import ResourceKind


class Api:
    """Knows where reading is forbidden."""

    def __init__(self, *forbidden: str) -> None:
        self.forbidden = set(forbidden)
        self.is_away = False
        self.checks = 0
        self._asked = asyncio.Condition()

    async def has_been_asked(self, times: int) -> None:
        async with self._asked:
            await self._asked.wait_for(lambda: self.checks >= times)

    async def check(self, _kind: ResourceKind, namespace: str | None = None) -> None:
        async with self._asked:
            self.checks += 1
            self._asked.notify_all()
        if self.is_away:
            raise ApiUnavailableError("away", may_have_landed=False)
        if namespace in self.forbidden:
            raise ApiError(403, "Forbidden", f"cannot list in {namespace}")


@pytest.mark.parametrize(
    ("forbidden", "served"),
    [
        ((), ("a", "b", "c")),
        (("b",), ("a", "c")),
        # Nobody would be held up: it waits, as an operator of one namespace does.
        (("a", "b", "c"), ("a", "b", "c")),
    ],
)
def test_a_namespace_that_refuses_is_left_out(
    forbidden: tuple[str, ...], served: tuple[str, ...]
) -> None:
    assert asyncio.run(find_served(Api(*forbidden), ("a", "b", "c"))) == served  # type: ignore[arg-type]


def test_one_namespace_and_all_of_them_are_not_asked_for() -> None:
    api = Api("a")
    assert asyncio.run(find_served(api, ("a",))) == ("a",)  # type: ignore[arg-type]
    assert asyncio.run(find_served(api, ())) == ()  # type: ignore[arg-type]
    assert api.checks == 0


def test_a_namespace_that_stays_forbidden_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        api = Api("b")
        served = await find_served(api, ("a", "b"))  # type: ignore[arg-type]
        watch = asyncio.create_task(
            wait_for_another_set(api, ("a", "b"), served, look_s=0.001)  # type: ignore[arg-type]
        )
        await api.has_been_asked(8)
        watch.cancel()

    with caplog.at_level(logging.INFO):
        asyncio.run(story())
    assert [record.getMessage() for record in caplog.records] == [
        "namespace b is not served: 403 Forbidden: cannot list in b"
    ]


def test_another_set_is_noticed_but_an_api_server_that_is_away_is_none() -> None:
    async def story() -> None:
        api = Api("b")
        watch = asyncio.create_task(
            wait_for_another_set(api, ("a", "b"), ("a",), look_s=0.001)  # type: ignore[arg-type]
        )
        await api.has_been_asked(6)
        assert not watch.done()
        api.forbidden.clear()
        async with asyncio.timeout(60):
            await watch

    asyncio.run(story())


def test_the_environment_names_one_or_several() -> None:
    def watched(text: str) -> tuple[str, ...]:
        given = {"POD_NAME": "x", "POD_NAMESPACE": "y", "FAIRLEAD_WATCH_NAMESPACE": text}
        return read_settings(given).watch_namespaces

    assert watched("") == ()
    assert watched("orders") == ("orders",)
    assert watched("orders, billing,") == ("billing", "orders")


def test_those_that_are_left_out_are_known_to_be_there() -> None:
    settings = read_settings(
        {"POD_NAME": "x", "POD_NAMESPACE": "y", "FAIRLEAD_WATCH_NAMESPACE": "a,b,c"}
    )
    assert closed_of(settings, ("a", "c")) == {"b"}
    assert closed_of(settings, ("a", "b", "c")) == frozenset()
