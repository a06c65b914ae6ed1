"""What the parts of a session need of the broker that they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from fairlead_broker.clock import Clock
    from fairlead_broker.local_replicas import LocalReplicas
    from fairlead_broker.settings import Settings
    from fairlead_model.cluster import ClusterImage


class Controller(Protocol):
    """The controller, as brokers call it; `ControllerSession` implements it."""

    @property
    def longest_stop_ms(self) -> int:
        """After a longer stop of this process, another broker may lead what it leads."""
        ...

    @property
    def has_session(self) -> bool:
        """True while no other broker can lead what this one leads without its knowledge."""
        ...

    async def call(self, method: str, body: dict[str, Any], *, timeout_ms: int) -> dict[str, Any]:
        """Return what the controller answers; KafkaError if it refuses or does not answer."""
        ...


class RegisteredBroker(Protocol):
    """`Broker`, as far as the session knows it: `image` is replaced while they run."""

    settings: Settings
    clock: Clock
    node_id: int
    image: ClusterImage
    controller: Controller
    replicas: LocalReplicas

    @property
    def broker_epoch(self) -> int:
        """Epoch of this process start, -1 before the image says so."""
        ...
