"""What the controller shows of one cluster's topics, followed by long polls."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from fairlead_operator.controller_client import (
    ControllerRefusedError,
    ControllerStandbyError,
    ControllerUnavailableError,
    TopicChanges,
)
from fairlead_operator.topics.topic_resource import ClusterKey
from fairlead_operator.topics.work_queue import UNEXPECTED_DELAY_S

logger = logging.getLogger(__name__)

WAIT_MS: Final = 20_000
RETRY_S_MIN: Final = 0.2
RETRY_S_MAX: Final = 3.0


class TopicController(Protocol):
    """The methods of the controller's client that are needed here."""

    async def topics(
        self, namespace: str, cluster: str, *, since: str = "", wait_ms: int = 0
    ) -> TopicChanges:
        """Wait for changes of topics."""
        ...

    async def apply_topics(
        self, namespace: str, cluster: str, request: dict[str, Any]
    ) -> dict[str, Any]:
        """Apply Topic resources."""
        ...


class ClusterTopics:
    """Follows one cluster's topics.

    `on_change` is called with the names of changed topics, `on_health` when the first topic becomes
    under-replicated, and when none is any more.
    """

    def __init__(
        self,
        cluster: ClusterKey,
        controller: TopicController,
        *,
        complete_request: Callable[[ClusterKey], dict[str, Any]],
        on_start: Callable[[ClusterKey], None],
        on_change: Callable[[ClusterKey, Iterable[str]], None],
        on_health: Callable[[ClusterKey], None],
    ) -> None:
        self.entries: dict[str, Mapping[str, Any]] = {}
        """Topics by name, as of the last answer."""
        self.is_started = False
        """Whether the controller has been told which resources exist."""
        self._cluster = cluster
        self._controller = controller
        self._complete_request = complete_request
        self._on_start = on_start
        self._on_change = on_change
        self._on_health = on_health
        self._ailing: set[str] = set()
        """Topics with partitions that lack replicas in sync."""
        self._position = ""

    async def run(self) -> None:
        """Follow until cancelled; a ControllerStandbyError ends it."""
        delay_s = RETRY_S_MIN
        while True:
            try:
                await self._poll()
                delay_s = RETRY_S_MIN
            except (ControllerUnavailableError, ControllerRefusedError) as error:
                logger.info("topics of %s/%s: %s; asking again", *self._cluster, error)
                await asyncio.sleep(delay_s)
                delay_s = min(RETRY_S_MAX, delay_s * 2)
            except ControllerStandbyError:
                raise
            except Exception:
                # The error concerns only this cluster: the others go on.
                logger.exception("topics of %s/%s: an unexpected error", *self._cluster)
                self._position = ""  # some changes may not have been passed on: ask for all
                await asyncio.sleep(UNEXPECTED_DELAY_S)

    async def _poll(self) -> None:
        namespace, cluster = self._cluster
        changes = await self._controller.topics(
            namespace, cluster, since=self._position, wait_ms=WAIT_MS
        )
        touched = {str(entry["name"]) for entry in changes.topics} | set(changes.removed)
        if changes.is_full:
            touched |= self.entries.keys()
            self.entries.clear()
        for name in changes.removed:
            self.entries.pop(name, None)
        self.entries.update({str(entry["name"]): entry for entry in changes.topics})
        if changes.is_full:
            # A controller that has just begun may hold declarations of deleted resources.
            request = self._complete_request(self._cluster)
            await self._controller.apply_topics(namespace, cluster, request)
            self.is_started = True
            self._on_start(self._cluster)
        self._position = changes.position
        self._note_health(touched)
        self._on_change(self._cluster, touched)

    def _note_health(self, touched: Iterable[str]) -> None:
        was_ailing = bool(self._ailing)
        for name in touched:
            if self.entries.get(name, {}).get("underReplicated"):
                self._ailing.add(name)
            else:
                self._ailing.discard(name)
        if bool(self._ailing) != was_ailing:
            self._on_health(self._cluster)
