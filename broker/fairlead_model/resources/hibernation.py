"""What a LogCluster's status says of its sleep, in words that operator and controller share."""

from typing import Final

HIBERNATED: Final = "Hibernated"
"""Type of the condition from the wish to sleep until the cluster is awake, and the reason that
others give meanwhile."""
ASLEEP: Final = "Asleep"
STOPPING: Final = "StoppingBrokers"
WAKING: Final = "Waking"
DOWN_REASONS: Final = frozenset({STOPPING, ASLEEP})
"""Reasons of the condition while no broker is to serve."""
SLEEP_REASONS: Final = DOWN_REASONS | {WAKING}
"""Reasons from the stop of the first broker until all are back."""
