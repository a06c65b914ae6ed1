"""Gives brokers, by the controller, the settings of their LogCluster that change while they run."""

from collections.abc import Mapping
from dataclasses import dataclass

from fairlead_operator.clusters.plan import ClusterPlan
from fairlead_operator.controller_client import (
    ControllerClient,
    ControllerRefusedError,
    ControllerUnavailableError,
)
from fairlead_operator.events import EventWriter
from fairlead_operator.live_objects import ClusterKey, Manifest
from fairlead_operator.specs.live_settings import decide_declaration

NAMED_MAX = 10


@dataclass(frozen=True, slots=True)
class SettingsReport:
    """How far the settings of a LogCluster have been applied."""

    is_in_force: bool = False
    """All brokers use the settings of the present generation."""
    is_new: bool = False
    """The controller has just received them."""
    problem: str = ""
    """Why the controller refuses them."""


class SettingsTeller:
    """The part of a reconciliation that concerns live settings."""

    def __init__(self, controller: ControllerClient, events: EventWriter) -> None:
        self._controller = controller
        self._events = events

    async def tell(
        self,
        manifest: Manifest,
        plan: ClusterPlan,
        declared: Mapping[str, str],
        *,
        is_rolled: bool,
    ) -> SettingsReport:
        """Send the controller the settings that differ from those it has (`declared`).

        `is_rolled` says that all brokers run with the files of the plan.
        """
        wanted = decide_declaration(plan.live_settings, declared, may_unset=is_rolled)
        key: ClusterKey = (manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        if wanted != declared:
            try:
                await self._controller.declare_configs(*key, wanted)
            except (ControllerRefusedError, ControllerUnavailableError) as error:
                return SettingsReport(problem=f"settings are not in force: {error}")
            await self._events.emit(manifest, "SettingsChanged", describe_change(declared, wanted))
        return SettingsReport(
            is_in_force=is_rolled and wanted == plan.live_settings, is_new=wanted != declared
        )


def describe_change(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return a message that names the settings that have changed."""
    changes = [
        f"{name}={after[name]}" if name in after else f"{name} is unset"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
    more = len(changes) - NAMED_MAX
    said = ", ".join(changes[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
    return f"brokers use changed settings, without a restart: {said}"
