"""The effects of losing a drill's brokers, computed before the fault."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead_cli.errors import CliError, InputError

if TYPE_CHECKING:
    from collections.abc import Collection

    from fairlead_controller.decisions.state import ControllerState
    from fairlead_controller.decisions.what_if import Forecast


def require_safe(forecast: Forecast) -> None:
    """Raise CliError if partitions would be lost with several brokers; one broker is allowed."""
    if len(forecast.lost) < 2 or forecast.is_safe:
        return
    counts = count_losses(forecast)
    raise CliError(
        f"brokers {', '.join(map(str, sorted(forecast.lost)))} may not be broken at once: "
        f"{counts['withoutLeader']} partitions would lose their leader, {counts['belowMinimum']} "
        f"their min.insync.replicas, {counts['lastCopies']} their last copy",
        hint="Do it all the same with --allow-unsafe.",
    )


def count_losses(forecast: Forecast) -> dict[str, int]:
    """Return the number of partitions for each kind of loss."""
    each = forecast.partitions
    return {
        "leadersMove": sum(it.changes_leader and not it.loses_leader for it in each),
        "withoutLeader": sum(it.loses_leader for it in each),
        "belowMinimum": sum(it.falls_below_minimum for it in each),
        "lastCopies": sum(it.loses_last_copy for it in each),
    }


def find_rack(state: ControllerState, rack: str) -> list[int]:
    """Return the brokers of a rack; InputError names the existing racks."""
    brokers = state.image.brokers.items()
    found = sorted(broker for broker, its in brokers if its.rack == rack)
    if not found:
        racks = sorted({its.rack for _, its in brokers if its.rack})
        known = f"There are: {', '.join(racks)}." if racks else "No broker says its rack."
        raise InputError(f"no broker is in rack '{rack}'", hint=known)
    return found


def foretell(bootstrap: str, lost: Collection[int], *, allows_unsafe: bool) -> dict[str, Any]:
    """Return the effects of losing these brokers now; CliError if they are too severe."""
    from fairlead_cli.client.cluster_state import read_cluster
    from fairlead_controller.decisions.what_if import forecast_loss

    forecast = forecast_loss(read_cluster(bootstrap).state, lost)
    if not allows_unsafe:
        require_safe(forecast)
    return count_losses(forecast)
