"""Whether this pod's controller is the active one: asked four times a second over its socket."""

import asyncio
from typing import Final

from fairlead_operator.controller_client import ControllerClient, ControllerError

LOOK_S: Final = 0.25
DOUBT_S_MAX: Final = 1.0
"""A controller that is silent for so long counts as gone: another may soon hold its Lease."""


async def wait_until_active(controller: ControllerClient) -> str:
    """Wait for the Lease; return the identity under which this pod holds it."""
    while True:
        try:
            state = await controller.state()
            if state.is_active:
                return state.identity
        except ControllerError:
            pass
        await asyncio.sleep(LOOK_S)


async def still_reigns(controller: ControllerClient, identity: str) -> bool:
    """Tell whether this pod holds the Lease under this identity at this moment."""
    try:
        async with asyncio.timeout(DOUBT_S_MAX):
            state = await controller.state()
    except (ControllerError, TimeoutError):
        return False
    return state.is_active and state.identity == identity


async def wait_until_over(controller: ControllerClient, identity: str) -> str:
    """Wait until the reign of this identity is over; return why."""
    clock = asyncio.get_running_loop().time
    heard_at = clock()
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            async with asyncio.timeout(DOUBT_S_MAX):
                state = await controller.state()
            if not state.is_active or state.identity != identity:
                return "the controller of this pod does not hold the Lease any more"
            heard_at = clock()
        except (ControllerError, TimeoutError) as error:
            if clock() - heard_at > DOUBT_S_MAX:
                return f"the controller of this pod does not answer: {error}"
