"""Events about our resources, for people: named, bounded, and never a reason to fail.

An Event lives for about an hour, so it is history and never state. A write that fails is counted
and logged; the reconciliation that asked for it goes on.
"""

import logging
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from fairlead_kube.client import KubeClient
from fairlead_kube.errors import ApiError, ApiUnavailableError
from fairlead_kube.kinds import EVENT
from fairlead_operator.event_ledger import EventKey, EventLedger, NewEvent, RepeatedEvent

EventType = Literal["Normal", "Warning"]
REPORTING_CONTROLLER: Final = "fairlead.io/operator"
NOTE_BYTES_MAX: Final = 1024
"""The API server refuses longer notes."""
_INSTANCE_LENGTH_MAX: Final = 128
_NAME_LENGTH_MAX: Final = 253

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class EventCounters:
    """Counts of written and failed Events, for metrics."""

    written: int = 0
    failed: int = 0


class EventWriter:
    """Writes Events through one client; `instance` is the pod that reports."""

    def __init__(
        self, client: KubeClient, *, instance: str = "", clock: Callable[[], float] = time.time
    ) -> None:
        self.counters = EventCounters()
        self.ledger = EventLedger()
        self._client = client
        self._instance = (instance or socket.gethostname())[:_INSTANCE_LENGTH_MAX]
        self._clock = clock

    async def emit(
        self,
        object: Mapping[str, Any],
        reason: str,
        message: str,
        type: EventType = "Normal",
        *,
        action: str = "Reconcile",
    ) -> None:
        """Emit an Event about an object; `object` is its manifest from the API."""
        now_s = self._clock()
        metadata = object["metadata"]
        note = shortened_note(message)
        key = EventKey(str(metadata.get("uid", "")), type, reason, note)
        # A cut name may end with a character after which the API server accepts no dot.
        prefix = metadata["name"][: _NAME_LENGTH_MAX - 33].rstrip("-.")
        name = f"{prefix}.{uuid.uuid4().hex}"
        decision = self.ledger.decide(key, name, now_s)
        if decision is None:
            return
        event = build_event(
            object,
            name=name,
            note=_with_left_out(note, decision),
            reason=reason,
            type=type,
            action=action,
            instance=self._instance,
            now_s=now_s,
        )
        try:
            await self._write(decision, event, now_s)
            self.counters.written += 1
        except (ApiError, ApiUnavailableError) as error:
            self.ledger.forget(key)
            self.counters.failed += 1
            place = f"{metadata.get('namespace', '')}/{metadata['name']}"
            _log.warning("the Event %s about %s was not written: %s", reason, place, error)

    async def _write(
        self, decision: NewEvent | RepeatedEvent, event: dict[str, Any], now_s: float
    ) -> None:
        namespace = event["metadata"]["namespace"]
        if isinstance(decision, NewEvent):
            await self._client.create(EVENT, namespace, event)
            return
        series = {"count": decision.count, "lastObservedTime": micro_time(now_s)}
        await self._client.patch(EVENT, namespace, decision.name, {"series": series})


def build_event(
    object: Mapping[str, Any],
    *,
    name: str,
    note: str,
    reason: str,
    type: EventType,
    action: str,
    instance: str,
    now_s: float,
) -> dict[str, Any]:
    """Return an Event of events.k8s.io/v1, for an object without a namespace in `default`."""
    metadata = object["metadata"]
    namespace = metadata.get("namespace")
    regarding = {
        "apiVersion": object.get("apiVersion"),
        "kind": object.get("kind"),
        "name": metadata["name"],
        "namespace": namespace,
        "uid": metadata.get("uid"),
        "resourceVersion": metadata.get("resourceVersion"),
    }
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"name": name, "namespace": namespace or "default"},
        "eventTime": micro_time(now_s),
        "reportingController": REPORTING_CONTROLLER,
        "reportingInstance": instance,
        "action": action,
        "reason": reason,
        "type": type,
        "note": note,
        "regarding": {field: value for field, value in regarding.items() if value},
    }


def shortened_note(text: str, maximum: int = NOTE_BYTES_MAX) -> str:
    """Cut a text to so many bytes of UTF-8; a cut one ends with an ellipsis."""
    encoded = text.encode()
    if len(encoded) <= maximum:
        return text
    ellipsis = "…"
    return encoded[: maximum - len(ellipsis.encode())].decode(errors="ignore") + ellipsis


def micro_time(moment_s: float) -> str:
    """Write a time as Events need it: UTC, to the microsecond."""
    return datetime.fromtimestamp(moment_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _with_left_out(note: str, decision: NewEvent | RepeatedEvent) -> str:
    if isinstance(decision, RepeatedEvent) or not decision.left_out:
        return note
    suffix = f" ({decision.left_out} more of this reason before it were left out)"
    return shortened_note(note, NOTE_BYTES_MAX - len(suffix)) + suffix
