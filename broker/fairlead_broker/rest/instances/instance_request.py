"""A request for a consumer instance, as far as instances and what passes it on know it.

`fairlead_broker.rest.request.RestRequest` is what stands behind it. It leads handlers to the
instances, so these do not know it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping
    from contextlib import ExitStack

    from aiohttp import web

    from fairlead_broker.broker import Broker
    from fairlead_broker.rest.bodies import BodyReader
    from fairlead_broker.rest.calls import KafkaCalls
    from fairlead_broker.rest.operations import Operation


class InstanceRequest(Protocol):
    """Has its turn at an instance, and may read there."""

    kafka: KafkaCalls
    stopping: asyncio.Event

    @property
    def broker(self) -> Broker: ...
    def hold(self, size: int, held: ExitStack | None = None) -> None:
        """Count bytes until the answer is written; ProblemError 429 where there is no room."""
        ...

    def when_answered(self, call: Callable[[], None]) -> None:
        """Have this called when the answer is written, or cannot be."""
        ...

    def if_unwritten(self, call: Callable[[], None]) -> None:
        """Have this called where the answer cannot be written to the client."""
        ...


class ForwardableRequest(InstanceRequest, Protocol):
    """May be passed on to the broker that has the instance."""

    http: web.BaseRequest
    path: Mapping[str, Any]
    query: Mapping[str, Any]
    body: BodyReader
    deadline_s: float

    @property
    def operation(self) -> Operation[Any]: ...
    def hold_anyway(self, size: int) -> None:
        """Count bytes until the answer is written, for which there may be no room."""
        ...

    def maybe_compress(self, response: web.Response) -> None:
        """Have an answer compressed that is large enough, for a client that takes that."""
        ...
