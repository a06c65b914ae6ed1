"""Keeps a copy of a collection in the API server, and reports what changes in it.

It lists, reports the differences, and watches. When the watch breaks, is too old or reports an
error, it lists again: every missed change, including deletions, shows as a difference. It runs
until it is cancelled.

A watch can die without notice, and a server that has lost its store keeps watches open and silent.
So watches are short: the server is asked to end each after `watch_s`, shortly before which it sends
a bookmark. A longer silence means that the connection is dead. Before the next watch begins, a read
of one object proves that the server can still read its store.

A collection of several namespaces is followed in each namespace separately. A namespace in which
this is forbidden, because it was deleted or its roles were removed, does not delay the others. Its
objects are unknown and must not be considered absent: `is_hidden` tells.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from types import MappingProxyType
from typing import Any, Final

from fairlead_kube.client import KubeClient, jittered
from fairlead_kube.errors import ApiError, ApiUnavailableError
from fairlead_kube.kinds import ResourceKind
from fairlead_kube.object_changes import (
    ObjectChange,
    ObjectKey,
    diff_event,
    diff_listing,
)

logger = logging.getLogger(__name__)

WATCH_S: Final = 10.0
SILENCE_GRACE_S: Final = 2.0
"""By how much a server may exceed `watch_s` before the connection counts as dead."""
BACKOFF_S_MIN: Final = 0.1
BACKOFF_S_MAX: Final = 3.0


class Informer:
    """The copy of one collection, or of the part of it that a label selector selects."""

    def __init__(
        self,
        client: KubeClient,
        kind: ResourceKind,
        *,
        namespaces: Collection[str] = (),
        closed: Collection[str] = (),
        label_selector: str = "",
        on_change: Callable[[ObjectChange], None] | None = None,
        on_shown: Callable[[], None] | None = None,
        watch_s: float = WATCH_S,
        silence_grace_s: float = SILENCE_GRACE_S,
    ) -> None:
        """`namespaces`: empty for all namespaces, or for a kind without namespaces.

        `closed` are namespaces that are not followed only because they do not permit it.
        `on_shown` is called when a namespace that was hidden has been listed.
        """
        places: Sequence[str | None] = sorted(set(namespaces)) or [None]
        self._objects: dict[ObjectKey, dict[str, Any]] = {}
        self._by_place = {
            namespace: _Part(
                client,
                kind,
                self._objects,
                namespace=namespace,
                label_selector=label_selector,
                on_change=on_change,
                watch_s=watch_s,
                silence_s=watch_s + silence_grace_s,
                on_settled=self._settle,
                on_shown=on_shown,
            )
            for namespace in places
        }
        self._parts = tuple(self._by_place.values())
        self._closed = frozenset(closed)
        self._synced = asyncio.Event()
        self.objects: Mapping[ObjectKey, dict[str, Any]] = MappingProxyType(self._objects)
        """The known objects, without managedFields, which no caller reads."""

    @property
    def is_synced(self) -> bool:
        """Whether everything that may be listed has been listed once."""
        return self._synced.is_set()

    @property
    def is_refused(self) -> bool:
        """Whether nothing was ever listed, for lack of permission."""
        return all(part.is_hidden and not part.is_listed for part in self._parts)

    @property
    def age_s(self) -> float:
        """Seconds since the last proof that nothing is missing; infinite before the first.

        Namespaces in which lists are forbidden do not count, unless they are forbidden in all.
        """
        allowed = [part for part in self._parts if not part.is_forbidden] or self._parts
        return time.monotonic() - min(part.fresh_at for part in allowed)

    @property
    def relists(self) -> int:
        """How many times all objects were listed, for metrics."""
        return sum(part.relists for part in self._parts)

    @property
    def problem(self) -> str:
        """Why the last watch or list failed; empty while all is well."""
        return "; ".join(part.problem for part in self._parts if part.problem)

    def is_hidden(self, namespace: str) -> bool:
        """Tell whether a namespace may have unknown objects, because they may not be read.

        That holds from a refusal to the next list; ask only once everything is `synced`. Other
        namespaces that are not followed have nothing to wait for, unless they are `closed`.
        """
        if namespace in self._closed:
            return True
        part = self._by_place.get(namespace) or self._by_place.get(None)
        return part is not None and part.is_hidden

    async def synced(self) -> None:
        """Wait until everything that may be listed has been listed once."""
        await self._synced.wait()

    async def run(self) -> None:
        """Follow the collection until cancelled."""
        async with asyncio.TaskGroup() as group:
            for part in self._parts:
                group.create_task(part.run())

    def _settle(self) -> None:
        """Note that a part was listed, or that its list is forbidden."""
        is_settled = all(part.is_listed or part.is_forbidden for part in self._parts)
        if is_settled and any(part.is_listed for part in self._parts):
            self._synced.set()


class _Part:
    """The objects of one namespace, or of all namespaces."""

    def __init__(
        self,
        client: KubeClient,
        kind: ResourceKind,
        shared: dict[ObjectKey, dict[str, Any]],
        *,
        namespace: str | None,
        label_selector: str,
        on_change: Callable[[ObjectChange], None] | None,
        watch_s: float,
        silence_s: float,
        on_settled: Callable[[], None],
        on_shown: Callable[[], None] | None,
    ) -> None:
        """`shared` has the objects of all parts; each part adds and removes its own."""
        self._client = client
        self._kind = kind
        self._shared = shared
        self._namespace = namespace
        self._label_selector = label_selector
        self._on_change = on_change
        self._watch_s = watch_s
        self._silence_s = silence_s
        self._on_settled = on_settled
        self._on_shown = on_shown
        self._objects: dict[ObjectKey, dict[str, Any]] = {}
        self._failures = 0
        self.is_listed = False
        """Whether everything has been listed once."""
        self.is_forbidden = False
        """Whether the server's last answer was a refusal for lack of permission."""
        self.is_hidden = False
        """Whether a list was forbidden, and no list has succeeded since."""
        self.fresh_at = -math.inf
        self.relists = 0
        self.problem = ""

    async def run(self) -> None:
        """Follow the objects until cancelled."""
        while True:
            try:
                await self._follow()
            except (ApiError, ApiUnavailableError) as error:
                self._note_failure(error)
            except Exception as error:
                self.problem = repr(error)
                logger.exception("%s: listing again after an unexpected error", self._kind.plural)
            self._failures += 1
            delay_s = min(BACKOFF_S_MAX, BACKOFF_S_MIN * 2 ** min(self._failures - 1, 10))
            await asyncio.sleep(jittered(delay_s))

    async def _follow(self) -> None:
        """List and watch until something fails."""
        started = time.monotonic()
        listing = await self._client.list(
            self._kind, self._namespace, label_selector=self._label_selector
        )
        self.relists += 1
        self._apply(diff_listing(self._objects, listing.items))
        self._prove(started)
        was_hidden, self.is_hidden, self.is_listed = self.is_hidden, False, True
        self._on_settled()
        if was_hidden and self._on_shown is not None:
            self._on_shown()
        version = listing.resource_version
        while True:
            version = await self._watch(version)
            started = time.monotonic()
            await self._client.check(self._kind, self._namespace)
            self._prove(started)

    async def _watch(self, version: str) -> str:
        """Follow one watch until it ends in order; return the version to continue from."""
        events = self._client.watch(
            self._kind,
            self._namespace,
            resource_version=version,
            label_selector=self._label_selector,
            timeout_s=self._watch_s,
            silence_timeout_s=self._silence_s,
        )
        started = time.monotonic()
        async with aclosing(events):
            async for event in events:
                version = event.resource_version
                self._apply(diff_event(self._objects, event))
                self._prove(time.monotonic())
                self._failures = 0
        if time.monotonic() - started < self._watch_s / 2:
            raise ApiUnavailableError("the watch ended early", may_have_landed=False)
        self._failures = 0
        return version

    def _note_failure(self, error: ApiError | ApiUnavailableError) -> None:
        """Log the first failure in a row; a version that is too old to watch from is no failure."""
        is_worth_a_warning = not self.problem and not (
            isinstance(error, ApiError) and error.is_gone
        )
        level = logging.WARNING if is_worth_a_warning else logging.DEBUG
        logger.log(level, "%s: listing again: %s", self._kind.plural, error)
        self.problem = str(error)
        self.is_forbidden = isinstance(error, ApiError) and error.is_forbidden
        if self.is_forbidden:
            self.is_hidden = True
            self._on_settled()

    def _prove(self, moment: float) -> None:
        self.fresh_at = max(self.fresh_at, moment)
        self.is_forbidden = False
        if self.problem:
            logger.info("%s: up to date again", self._kind.plural)
        self.problem = ""

    def _apply(self, changes: list[ObjectChange]) -> None:
        for change in changes:
            if change.new is None:
                self._objects.pop(change.key, None)
                self._shared.pop(change.key, None)
            else:
                change.new["metadata"].pop("managedFields", None)
                self._objects[change.key] = self._shared[change.key] = change.new
            if self._on_change is None:
                continue
            try:
                self._on_change(change)
            except Exception:
                logger.exception("%s %s: a change was not digested", self._kind.kind, change.key)
