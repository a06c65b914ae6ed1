"""The `conditions` of every status, in Kubernetes' form."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from fairlead_model.resources.resource_shape import Bound, Text, Whole

CONDITIONS_MAX: Final = 16
REASON_LENGTH_MAX: Final = 128
MESSAGE_LENGTH_MAX: Final = 1024
GENERATION: Final = Whole(0, 2**53)
COUNT: Final = Whole(0, 2**53)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One claim about the resource, when it last changed, and why."""

    type: Annotated[str, "Type of the condition.", Text(64, 1, "[A-Z][A-Za-z0-9]*")]
    status: Annotated[Literal["True", "False", "Unknown"], "Whether the condition is true."]
    reason: Annotated[
        str, "Reason, in one word for programs.", Text(REASON_LENGTH_MAX, 1, "[A-Z][A-Za-z0-9]*")
    ]
    message: Annotated[str, "Reason, in words for people.", Text(MESSAGE_LENGTH_MAX)] = ""
    last_transition_time: Annotated[str, "When status last changed.", Text(64, format="date-time")]
    observed_generation: Annotated[
        int | None, "Generation of the spec that the condition is about.", GENERATION
    ] = None


Conditions = Annotated[
    tuple[Condition, ...],
    "Conditions of the resource, one for each type.",
    Bound(CONDITIONS_MAX, key="type"),
]
ObservedGeneration = Annotated[
    int | None, "Generation of the spec that this status is about.", GENERATION
]
