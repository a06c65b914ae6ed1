"""Carries out what `lease` decides, with the Lease object in the API server.

It uses a clock that also runs while the machine is suspended, and that nobody can set.
"""

import asyncio
import logging
import time
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any, Final

from fairlead_controller.kubernetes.lease import (
    DURATION_MS,
    RENEW_DEADLINE_MS,
    GiveUp,
    LeaseClaim,
    LeaseRecord,
    ReadLease,
    WaitUntil,
    WriteLease,
)
from fairlead_kube.client import KubeClient
from fairlead_kube.errors import ApiError, ApiUnavailableError
from fairlead_kube.kinds import LEASE

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_S: Final = 1.0
"""Timeout of each request about the Lease: a holder has time for a second one."""
RELEASE_TIMEOUT_S: Final = 1.0


def boot_ms() -> int:
    """Return milliseconds since the machine started, suspended time included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class Elector:
    """Competes for the Lease for one process, renews it and releases it."""

    def __init__(self, client: KubeClient, namespace: str, name: str, identity: str) -> None:
        self.identity = identity
        self._client = client
        self._namespace = namespace
        self._name = name
        self._claim = LeaseClaim(identity)
        self._manifest: dict[str, Any] | None = None
        self._problem = ""
        self._asking = asyncio.Lock()
        self._is_given_back = False
        self._renewed = asyncio.Event()
        """Set by the next renewal; each renewal makes a new event."""

    @property
    def is_holder(self) -> bool:
        """Whether this process has won the Lease and has not given it up."""
        return self._claim.is_holder

    @property
    def holder(self) -> str:
        """The holder of the Lease when it was last read; empty for none."""
        return self._claim.holder

    def is_held(self) -> bool:
        """Tell whether this process may act at this moment."""
        return self._claim.is_held(boot_ms())

    async def confirm(self) -> None:
        """Return once a renewal that began after this call shows that this process holds the Lease.

        If another process holds it, this never returns: `keep` returns then, and the process ends.
        """
        asked_ms = boot_ms()
        while self._claim.held_until_ms <= asked_ms + RENEW_DEADLINE_MS:
            await self._renewed.wait()

    async def acquire(self) -> None:
        """Return once the Lease is held."""
        while not self._claim.is_holder:
            await self._step()

    async def keep(self) -> str:
        """Renew the Lease as long as possible; return why it is lost."""
        while True:
            reason = await self._step()
            if reason:
                return reason
            if self._is_given_back:
                return "the Lease was given back"

    async def release(self) -> None:
        """Release the Lease, so that another candidate need not wait. A failure only costs time."""
        try:
            # A renewal under way changes the version, so the release has to come after it.
            async with asyncio.timeout(RELEASE_TIMEOUT_S), self._asking:
                if not self.is_held() or self._manifest is None:
                    return
                self._is_given_back = True
                body = self._body(is_takeover=False)
                body["spec"]["holderIdentity"] = ""
                body["spec"]["leaseDurationSeconds"] = 1
                await self._client.replace(LEASE, self._namespace, self._name, body)
        except (ApiError, ApiUnavailableError, TimeoutError) as error:
            logger.warning("the Lease could not be given back: %s", error)

    async def _step(self) -> str:
        """Do one step; return why the Lease is lost, if that is so."""
        step = self._claim.next_step(boot_ms())
        match step:
            case GiveUp():
                return step.reason
            case WaitUntil():
                await asyncio.sleep(max(step.at_ms - boot_ms(), 0) / 1000)
            case ReadLease() | WriteLease():
                await self._ask(step)
        return ""

    async def _ask(self, step: ReadLease | WriteLease) -> None:
        limit_s = REQUEST_TIMEOUT_S
        if self._claim.is_holder:
            limit_s = min(limit_s, max(self._claim.held_until_ms - boot_ms(), 1) / 1000)
        try:
            async with asyncio.timeout(limit_s), self._asking:
                if self._is_given_back:
                    return
                await (self._read() if isinstance(step, ReadLease) else self._write(step))
        except (ApiError, ApiUnavailableError, TimeoutError) as error:
            self._claim.on_failed(boot_ms())
            self._note_problem(error)
        else:
            self._problem = ""

    async def _read(self) -> None:
        try:
            self._manifest = await self._client.get(LEASE, self._namespace, self._name)
        except ApiError as error:
            if not error.is_not_found:
                raise
            self._manifest = None
        record = None if self._manifest is None else read_record(self._manifest)
        self._claim.on_read(record, boot_ms())

    async def _write(self, step: WriteLease) -> None:
        body = self._body(is_takeover=step.is_takeover)
        asked_ms = boot_ms()
        if step.version is None:
            written = await self._client.create(LEASE, self._namespace, body)
        else:
            written = await self._client.replace(LEASE, self._namespace, self._name, body)
        self._manifest = written
        self._claim.on_written(read_record(written), asked_ms)
        self._renewed.set()
        self._renewed = asyncio.Event()

    def _body(self, *, is_takeover: bool) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        body = deepcopy(self._manifest) or {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
        }
        spec = body.setdefault("spec", {})
        if is_takeover:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
        spec["holderIdentity"] = self.identity
        spec["leaseDurationSeconds"] = DURATION_MS // 1000
        spec["renewTime"] = now
        return body

    def _note_problem(self, error: Exception) -> None:
        is_conflict = isinstance(error, ApiError) and error.is_conflict
        problem = str(error) or "no answer in time"
        if not is_conflict and problem != self._problem:
            self._problem = problem
            logger.warning("the Lease cannot be read or written: %s", problem)


def read_record(manifest: dict[str, Any]) -> LeaseRecord:
    """Read the fields of a Lease object that `lease` needs."""
    spec = manifest.get("spec") or {}
    renewal = f"{spec.get('renewTime')} {spec.get('acquireTime')} {spec.get('leaseTransitions')}"
    return LeaseRecord(
        version=manifest["metadata"]["resourceVersion"],
        holder=spec.get("holderIdentity") or "",
        renewal=renewal,
        duration_ms=int(spec.get("leaseDurationSeconds") or 0) * 1000,
    )
