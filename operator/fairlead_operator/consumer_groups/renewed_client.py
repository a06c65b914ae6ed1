"""A client of a cluster's groups that is created again when brokers cannot be reached.

By then the cluster may use another security protocol or authority than before. The client is also
created again once an hour: its certificate ends, and so does the trust in its authority. Brokers to
which it is still connected do not notice that, so it would go on without those that have restarted.
"""

import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

from fairlead_kube.client import KubeClient
from fairlead_kube.errors import ApiError, ApiUnavailableError
from fairlead_operator.consumer_groups.group_client import (
    BrokersUnreachableError,
    CommitOutcome,
    GroupClient,
    LogOffsets,
    LogPoint,
)
from fairlead_operator.consumer_groups.group_sight import GroupProblem, GroupSight, Place
from fairlead_operator.own_access import AccessError, find_access
from fairlead_operator.specs.listener_security import OPERATOR_USER

Answer = TypeVar("Answer")
LIFE_S: Final = 3600.0
"""How long one client is used; its certificate is good for much longer."""


class RenewedClient:
    """A `GroupClient` that asks `connect` for another one after each failure, and each hour."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[GroupClient]],
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._now = now
        self._client: GroupClient | None = None
        self._ends_at = 0.0

    async def look(self, group_ids: Sequence[str]) -> Mapping[str, GroupSight | GroupProblem]:
        """Read groups; nothing else may be asked meanwhile."""
        if self._now() >= self._ends_at:
            await self.close()
        return await self._ask(lambda client: client.look(group_ids))

    async def partition_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        """Return the number of partitions of each topic that exists."""
        return await self._ask(lambda client: client.partition_counts(topics))

    async def log_offsets(self, places: Collection[Place], point: LogPoint | int) -> LogOffsets:
        """Return the start or end of logs, or the first offset of a time in milliseconds."""
        return await self._ask(lambda client: client.log_offsets(places, point))

    async def commit(self, group_id: str, offsets: Mapping[Place, int]) -> CommitOutcome:
        """Commit offsets of a group without members."""
        return await self._ask(lambda client: client.commit(group_id, offsets))

    async def close(self) -> None:
        """Close all connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _ask(self, question: Callable[[GroupClient], Awaitable[Answer]]) -> Answer:
        if self._client is None:
            self._client = await self._connect()
            self._ends_at = self._now() + LIFE_S
        try:
            return await question(self._client)
        except BrokersUnreachableError:
            await self.close()
            raise


async def connect_inside(
    client: KubeClient, namespace: str, log_cluster: Mapping[str, Any]
) -> GroupClient:
    """Return a client of a cluster as it is now; BrokersUnreachableError if there is no way in."""
    # Imported only here: an operator without ConsumerGroups needs no librdkafka.
    from fairlead_operator.consumer_groups.kafka_client import KafkaGroupClient

    try:
        access = await find_access(client, namespace, log_cluster, OPERATOR_USER)
    except (AccessError, ApiError, ApiUnavailableError) as error:
        raise BrokersUnreachableError(str(error)) from error
    return KafkaGroupClient(access.client_settings())
