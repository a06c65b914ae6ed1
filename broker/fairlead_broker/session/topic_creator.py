"""Topics that come to be without CreateTopics: auto-creation, and the cluster's internal ones.

Metadata and FindCoordinator ask for them; the controller makes them. However many clients ask for
the same missing topic, one call is under way for it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from fairlead_broker.limits import TOPIC_CREATIONS_MAX
from fairlead_broker.session.controller_calls import ask_controller, error_code
from fairlead_model.ids import CONSUMER_OFFSETS, TRANSACTION_STATE, is_internal_topic
from fairlead_model.session.calls import CreatableTopic, CreateTopicsCall, Method
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead_broker.session.registered_broker import RegisteredBroker

logger = logging.getLogger(__name__)

CREATION_TIMEOUT_MS: Final = 5_000


class TopicCreator:
    """At most one creation a name, at most `TOPIC_CREATIONS_MAX` in all."""

    def __init__(self, broker: RegisteredBroker) -> None:
        self._broker = broker
        self._under_way: dict[str, asyncio.Task[KafkaError | None]] = {}

    def begin(self, name: str) -> None:
        """Have a topic made in the background; who needs it asks again."""
        self._task(name)

    async def ensure(self, names: Iterable[str]) -> dict[str, KafkaError]:
        """Make topics and wait for the outcome; the refusals by name.

        When this returns, what was created is in the broker's image.
        """
        tasks = {name: self._task(name) for name in names}
        failures: dict[str, KafkaError] = {}
        for name, task in tasks.items():
            failure = _busy() if task is None else await asyncio.shield(task)
            if failure is not None:
                failures[name] = failure
        return failures

    def _task(self, name: str) -> asyncio.Task[KafkaError | None] | None:
        task = self._under_way.get(name)
        if task is None and len(self._under_way) < TOPIC_CREATIONS_MAX:
            task = asyncio.create_task(self._create(name), name=f"create topic {name}")
            self._under_way[name] = task
            task.add_done_callback(lambda _: self._under_way.pop(name, None))
        return task

    async def _create(self, name: str) -> KafkaError | None:
        settings = self._broker.settings
        call = CreateTopicsCall(
            topics=[self._describe(name)],
            validate_only=False,
            default_partitions=settings.num_partitions,
            default_replication_factor=settings.default_replication_factor,
            internal=is_internal_topic(name),
        )
        try:
            reply = await ask_controller(
                self._broker, Method.CREATE_TOPICS, call, timeout_ms=CREATION_TIMEOUT_MS
            )
        except KafkaError as error:
            logger.warning("topic %s could not be created: %s", name, error)
            return error
        created = reply["topics"][0]
        code = error_code(created["error_code"])
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            logger.info("topic %s is there: asked for by a client", name)
            return None
        logger.warning("topic %s was refused: %s", name, created["error_message"])
        return KafkaError(code, created["error_message"])

    def _describe(self, name: str) -> CreatableTopic:
        settings = self._broker.settings
        if name == CONSUMER_OFFSETS:
            return CreatableTopic(
                name=name,
                partitions=settings.offsets_topic_num_partitions,
                replication_factor=settings.offsets_topic_replication_factor,
                assignments={},
                configs={
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(settings.offsets_topic_segment_bytes),
                },
            )
        if name == TRANSACTION_STATE:
            factor = settings.transaction_topic_replication_factor
            return CreatableTopic(
                name=name,
                partitions=settings.transaction_topic_num_partitions,
                replication_factor=factor,
                assignments={},
                configs={
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "min.insync.replicas": str(min(settings.transaction_topic_min_isr, factor)),
                    "segment.bytes": str(settings.transaction_topic_segment_bytes),
                    "unclean.leader.election.enable": "false",
                },
            )
        return CreatableTopic(
            name=name, partitions=-1, replication_factor=-1, assignments={}, configs={}
        )


def _busy() -> KafkaError:
    return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "too many topics are being created")
