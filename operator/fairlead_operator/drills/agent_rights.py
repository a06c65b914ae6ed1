"""Gives the user of drills its rights: over their own topics, and nothing else."""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from fairlead_operator.drills.agent_pod import TOPIC_PREFIX
from fairlead_operator.own_access import AccessError, OwnAccess

if TYPE_CHECKING:
    from concurrent.futures import Future

GROUP: Final = "fairlead-cli"
"""The group in the settings of the consumer that reads a drill's records back."""
REQUEST_TIMEOUT_S: Final = 10.0


async def ensure_rights(operator: OwnAccess, user: str) -> None:
    """Let a user do everything with drills' topics; AccessError if brokers do not answer."""
    # Imported only here: an operator without drills of secured clusters needs no librdkafka.
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        AdminClient,
        ResourcePatternType,
        ResourceType,
    )

    rules: list[Any] = [
        AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        for kind, name, pattern, operation in (
            (ResourceType.TOPIC, TOPIC_PREFIX, ResourcePatternType.PREFIXED, AclOperation.ALL),
            # A consumer that joins no group still asks for the coordinator of the group in its
            # settings.
            (ResourceType.GROUP, GROUP, ResourcePatternType.LITERAL, AclOperation.DESCRIBE),
        )
    ]
    admin: Any = AdminClient({**operator.client_settings(), "log_level": 2})
    futures: dict[Any, Future[None]] = admin.create_acls(rules, request_timeout=REQUEST_TIMEOUT_S)
    try:
        await asyncio.gather(*map(asyncio.wrap_future, futures.values()))
    except KafkaException as error:
        raise AccessError(f"rights for the load: {error.args[0]}") from error
