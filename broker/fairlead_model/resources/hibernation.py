"""The condition of a hibernating LogCluster: names that the operator and the controller share."""

from typing import Final

HIBERNATED: Final = "Hibernated"
"""Type of the condition. It is set from the request to hibernate until the cluster is awake.
Meanwhile it is also the reason of other conditions."""
ASLEEP: Final = "Asleep"
STOPPING: Final = "StoppingBrokers"
WAKING: Final = "Waking"
DOWN_REASONS: Final = frozenset({STOPPING, ASLEEP})
"""Reasons of the condition while no broker is meant to serve."""
SLEEP_REASONS: Final = DOWN_REASONS | {WAKING}
"""Reasons of the condition from the stop of the first broker until all are back."""
