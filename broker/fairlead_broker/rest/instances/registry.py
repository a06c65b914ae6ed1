"""The consumer instances of this broker: their names, how many there may be, when they end.

A name that a broker generates begins with the broker's id, so that other brokers know where to
forward requests.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.limits import REST_INSTANCE_CALL_S, REST_INSTANCES_MAX
from fairlead_broker.rest.instances.instance import ConsumerInstance
from fairlead_broker.rest.problems import (
    INSTANCE_EXISTS,
    INVALID_INSTANCE_CONFIG,
    RETRY_AFTER,
    ProblemError,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from fairlead_broker.authorization import Principal
    from fairlead_broker.measures.rest_metrics import RestMetrics
    from fairlead_broker.rest.calls import KafkaCalls
    from fairlead_broker.rest.instances.instance import InstanceConfig

_GIVEN_NAME: Final = re.compile(r"b(\d{1,10})-")
_SWEEPS_PER_TIMEOUT: Final = 10


def broker_of(name: str) -> int | None:
    """Return the broker that generated this name, None if a client has chosen it."""
    found = _GIVEN_NAME.match(name)
    return None if found is None else int(found[1])


class ConsumerInstances:
    """All instances by group and name. An instance that is idle for `timeout_ms` is ended."""

    def __init__(self, node_id: int, timeout_ms: int, metrics: RestMetrics) -> None:
        self._node_id = node_id
        self._timeout_s = timeout_ms / 1000
        self._metrics = metrics
        self._instances: dict[tuple[str, str], ConsumerInstance] = {}
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def check_name(self, group_id: str, name: str) -> None:
        """Raise ProblemError for a name that a client cannot choose: 409, 422."""
        if broker_of(name) not in (None, self._node_id):
            message = f"{name} is the name of an instance at another broker; leave the name out"
            raise ProblemError(422, message, code=INVALID_INSTANCE_CONFIG)
        if (group_id, name) in self._instances:
            raise instance_exists(name)

    def create(
        self, kafka: KafkaCalls, group_id: str, name: str | None, config: InstanceConfig
    ) -> ConsumerInstance:
        """Create an instance; ProblemError 409, 422 or 429."""
        if name is None:
            name = f"b{self._node_id}-{secrets.token_hex(8)}"
        self.check_name(group_id, name)
        if len(self._instances) >= REST_INSTANCES_MAX:
            raise ProblemError(
                429, f"this broker has {REST_INSTANCES_MAX} instances", headers=RETRY_AFTER
            )
        instance = ConsumerInstance(kafka, group_id, name, config)
        self._instances[group_id, name] = instance
        self._metrics.instances = len(self._instances)
        if self._sweep_timer is None:
            self._set_timer()
        return instance

    def find(self, principal: Principal, group_id: str, name: str) -> ConsumerInstance | None:
        """Return an instance of this principal, None if there is none."""
        found = self._instances.get((group_id, name))
        return found if found is not None and found.principal == principal else None

    async def remove(self, instance: ConsumerInstance, *, confirm: bool) -> None:
        """End an instance. With `confirm` all records that were read count as received."""
        if self._instances.pop((instance.group_id, instance.name), None) is not None:
            self._metrics.instances = len(self._instances)
            await instance.close(confirm=confirm)

    async def stop(self) -> None:
        """End all instances, so that other members of their groups get the partitions."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for instance in tuple(self._instances.values()):
            self._run(self.remove(instance, confirm=False))
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=REST_INSTANCE_CALL_S)
            for task in late:
                task.cancel()

    def _set_timer(self) -> None:
        self._sweep_timer = asyncio.get_running_loop().call_later(
            self._timeout_s / _SWEEPS_PER_TIMEOUT, self._sweep
        )

    def _sweep(self) -> None:
        self._sweep_timer = None
        now_s = asyncio.get_running_loop().time()
        for instance in tuple(self._instances.values()):
            idle_since_s = instance.idle_since_s
            if idle_since_s is not None and now_s - idle_since_s >= self._timeout_s:
                self._run(self.remove(instance, confirm=False))
        if self._instances:
            self._set_timer()

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def instance_exists(name: str) -> ProblemError:
    """Return the problem for a name that is already in use."""
    return ProblemError(409, f"there is a consumer instance {name} already", code=INSTANCE_EXISTS)
