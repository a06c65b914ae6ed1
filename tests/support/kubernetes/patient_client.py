"""A client for tests on a real API server that has to share two cores with all else.

Such a server answers too late now and then, or 429, or 500 because its etcd was too slow. None of
that is what a test is about, so the request is sent again, for a minute.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from waiting import DEADLINE_S

from fairlead_kube.client import MERGE_PATCH, KubeClient
from fairlead_kube.errors import TOO_MANY_REQUESTS, ApiError, ApiUnavailableError
from fairlead_kube.transport import JSON

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead_kube.credentials import Credentials
    from fairlead_kube.transport import Manifest

REQUEST_TIMEOUT_S: Final = 20.0
CONNECT_TIMEOUT_S: Final = 10.0
PAUSE_S: Final = 0.2
EVICTION: Final = "/eviction"


class PatientClient(KubeClient):
    """Sends requests again that got no answer, or one that will be another one soon.

    A write of unknown outcome is sent again only where the second one changes nothing, and where
    its answer tells the same.
    """

    def __init__(self, credentials: Credentials, *, patience_s: float = DEADLINE_S) -> None:
        super().__init__(
            credentials,
            request_timeout_s=REQUEST_TIMEOUT_S,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            user_agent="fairlead-tests",
        )
        self._patience_s = patience_s

    async def _read(
        self, verb: str, path: str, params: Mapping[str, str] | None = None, *, accept: str = JSON
    ) -> Manifest:
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                return await super()._read(verb, path, params, accept=accept)
            except (ApiError, ApiUnavailableError) as error:
                if not _is_passing(error) or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(PAUSE_S)

    async def _write(
        self,
        verb: str,
        method: str,
        path: str,
        body: object,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Manifest:
        deadline = time.monotonic() + self._patience_s
        may_have_landed = False
        while True:
            try:
                return await super()._write(
                    verb,
                    method,
                    path,
                    body,
                    params=params,
                    content_type=content_type,
                    accept=accept,
                )
            except (ApiError, ApiUnavailableError) as error:
                if may_have_landed and isinstance(error, ApiError):
                    if verb == "create" and error.reason == "AlreadyExists":
                        return await self._read("get", f"{path}/{_name_in(body)}")
                    if verb == "delete" and error.is_not_found:
                        return {}
                # A refused eviction is an answer: the disruption budget does not allow it now.
                is_final = not _is_passing(error) or path.endswith(EVICTION)
                if is_final or time.monotonic() > deadline:
                    raise
                may_have_landed |= _may_have_landed(error)
                if may_have_landed and not _may_come_twice(verb, body, content_type):
                    raise
            await asyncio.sleep(PAUSE_S)


def _is_passing(error: ApiError | ApiUnavailableError) -> bool:
    return isinstance(error, ApiUnavailableError) or error.is_passing


def _may_have_landed(error: ApiError | ApiUnavailableError) -> bool:
    if isinstance(error, ApiUnavailableError):
        return error.may_have_landed
    return error.status != TOO_MANY_REQUESTS


def _may_come_twice(verb: str, body: object, content_type: str) -> bool:
    """Tell whether a write that has landed can be sent again, and is answered as before."""
    if verb == "create":
        return bool(_name_in(body))
    if verb == "patch":
        return content_type == MERGE_PATCH and "resourceVersion" not in _metadata(body)
    if verb == "delete":
        return "preconditions" not in (body if isinstance(body, dict) else {})
    return verb == "apply"


def _metadata(body: object) -> Mapping[str, Any]:
    return (body.get("metadata") or {}) if isinstance(body, dict) else {}


def _name_in(body: object) -> str:
    return str(_metadata(body).get("name") or "")
