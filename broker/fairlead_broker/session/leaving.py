"""How a broker leaves in good order: others lead its partitions before it stops.

The controller that decides it may end in the middle, or be away when the stop begins. The next one
goes on from what is durable, so the broker asks again until its time is up.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from fairlead_model.session.calls import Method
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from fairlead_broker.session.controller_session import ControllerSession

logger = logging.getLogger(__name__)

CALL_TIMEOUT_MS: Final = 2_000
LEADERS_LEAVE_S: Final = 5.0
"""How long a stopping broker waits until other brokers lead its partitions."""
ASK_AGAIN_S: Final = 0.05
_PASSING: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER})
"""No controller answers, or one whose reign has just ended: the next one may."""


async def hand_over(
    session: "ControllerSession", *, leads: Callable[[], bool], within_s: float = LEADERS_LEAVE_S
) -> None:
    """Move leaders away, while clients can still be told of the new leaders."""
    session.set_stopping()
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + within_s
    problem: KafkaError | None = None
    while (session.is_connected or leads()) and (left_s := deadline_s - loop.time()) > 0:
        timeout_ms = min(CALL_TIMEOUT_MS, int(left_s * 1000) + 1)
        try:
            reply = await session.call(Method.CONTROLLED_SHUTDOWN, {}, timeout_ms=timeout_ms)
        except KafkaError as error:
            problem = error
            if error.code not in _PASSING:
                break
        else:
            problem = None
            if not reply["remaining_leaders"]:
                break
        await asyncio.sleep(ASK_AGAIN_S)
    if problem is not None:
        logger.warning("stopping without a controlled shutdown: %s", problem)
