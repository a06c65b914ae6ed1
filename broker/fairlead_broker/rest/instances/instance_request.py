"""A request for a consumer instance, as instances and forwarding see it.

`fairlead_broker.rest.request.RestRequest` implements these protocols. It imports the instances, so
they must not import it.
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
    """A request that waits for its turn at an instance, and may read there."""

    kafka: KafkaCalls
    stopping: asyncio.Event

    @property
    def broker(self) -> Broker: ...
    def hold(self, size: int, held: ExitStack | None = None) -> None:
        """Count bytes until the answer is written; ProblemError 429 beyond the limit."""
        ...

    def when_answered(self, call: Callable[[], None]) -> None:
        """Have `call` called when the answer is written, or when that has failed."""
        ...

    def if_unwritten(self, call: Callable[[], None]) -> None:
        """Have `call` called if the answer cannot be written to the client."""
        ...


class ForwardableRequest(InstanceRequest, Protocol):
    """A request that may be forwarded to the broker that has the instance."""

    http: web.BaseRequest
    path: Mapping[str, Any]
    query: Mapping[str, Any]
    body: BodyReader
    deadline_s: float

    @property
    def operation(self) -> Operation[Any]: ...
    def hold_anyway(self, size: int) -> None:
        """Count bytes until the answer is written, even if they exceed the limit."""
        ...

    def maybe_compress(self, response: web.Response) -> None:
        """Compress an answer if it is large enough and the client accepts that."""
        ...
