"""The assignors that `group.consumer.assignors` and members may name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.group.assignors.range_assignor import assign_ranges
from fairlead_broker.group.assignors.uniform_assignor import assign_uniformly

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead_broker.group.assignors.assignment import Assignor

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
