"""Which of the namespaces that the operator is to serve let it do so now.

Each namespace has its own roles. A namespace that was deleted, or whose roles were removed, must
not stop the others: kopf ends when one of its watches is refused. So it is left out, and when that
changes the kopf process ends and starts again with the namespaces of that time. This does not
affect elections, which are in another process.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from fairlead_kube.client import KubeClient
from fairlead_kube.errors import ApiError, ApiUnavailableError
from fairlead_kube.kinds import LOG_CLUSTER

logger = logging.getLogger(__name__)

LOOK_S: Final = 10.0


async def find_served(
    client: KubeClient, wanted: Sequence[str], *, level: int = logging.WARNING
) -> tuple[str, ...]:
    """Return those of several namespaces whose LogClusters may be read.

    All of them if none may be read, or while the API server does not answer: then there is nobody
    to be held up, and what follows waits for it. Each that may not is logged at `level`.
    """
    if len(wanted) < 2:
        return tuple(wanted)
    allowed = tuple([name for name in wanted if not await _is_forbidden(client, name, level)])
    return allowed or tuple(wanted)


async def wait_for_another_set(
    client: KubeClient, wanted: Sequence[str], served: Sequence[str], *, look_s: float = LOOK_S
) -> None:
    """Wait until another set of the namespaces may be served than now."""
    while True:
        await asyncio.sleep(look_s)
        # Who began with this set has logged why the others are not in it.
        found = await find_served(client, wanted, level=logging.DEBUG)
        if found != tuple(served):
            logger.warning("namespaces served: %s instead of %s", _list(found), _list(served))
            return


async def _is_forbidden(client: KubeClient, namespace: str, level: int) -> bool:
    try:
        await client.check(LOG_CLUSTER, namespace)
    except ApiUnavailableError:
        return False
    except ApiError as error:
        if error.is_forbidden:
            logger.log(level, "namespace %s is not served: %s", namespace, error)
        return error.is_forbidden
    return False


def _list(namespaces: Sequence[str]) -> str:
    return ", ".join(namespaces)
