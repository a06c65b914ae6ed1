"""The log of denied requests, at a bounded rate.

There is one line for each denied question, with the rule that decided: one JSON object, which log
shippers can parse. Clients repeat requests that were denied. So a question is logged once in a time
window, and each window has a maximum number of lines. The next line says how many were left out.
Names come from clients: JSON escapes them, and they are cut.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Final

from fairlead_broker.limits import DENIALS_LOGGED_PER_WINDOW, DENIALS_WINDOW_MS
from fairlead_model.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.security.standard_authorizer import Question
    from fairlead_model.security.acl_index import AclDecision

AUDIT_LOGGER: Final = "fairlead_broker.audit"
_LOGGER: Final = logging.getLogger(AUDIT_LOGGER)
_NAME_LENGTH_MAX: Final = 249


class DenialLog:
    """The lines of the current window; `note` is called for every denial."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._began_ms = 0
        self._told: set[Question] = set()
        self._left_out = 0

    def note(self, question: Question, decision: AclDecision) -> None:
        """Log a denial, unless it was logged in this window or the window is full."""
        now_ms = self._now_ms()
        if now_ms - self._began_ms >= DENIALS_WINDOW_MS:
            self._began_ms = now_ms
            self._told.clear()
        if question in self._told or len(self._told) >= DENIALS_LOGGED_PER_WINDOW:
            self._left_out += 1
            return
        self._told.add(question)
        principal, host, operation, resource_type, name = question
        line: dict[str, object] = {
            "event": "denied",
            "principal": str(principal)[:_NAME_LENGTH_MAX],
            "host": host,
            "operation": Operation(operation).name,
            "resourceType": ResourceType(resource_type).name,
            "resourceName": name[:_NAME_LENGTH_MAX],
            "because": _reason(decision),
        }
        if self._left_out:
            line["leftOut"], self._left_out = self._left_out, 0
        _LOGGER.warning("%s", json.dumps(line))


def _reason(decision: AclDecision) -> str:
    if decision.rule is not None:
        return str(decision.rule)
    return "no rule allows it" if decision.has_rules else "no rule applies to the resource"
