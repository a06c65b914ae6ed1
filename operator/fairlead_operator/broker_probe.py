"""Asks a broker that is not ready whether it recovers its logs, because then nobody may stop it."""

import json
from typing import Final

import aiohttp

from fairlead_operator.specs.names import HTTP_PORT

TIMEOUT_S: Final = 1.0
LOADING: Final = "loading"


async def probe_recovery(session: aiohttp.ClientSession, pod_ip: str) -> bool | None:
    """Tell whether the broker recovers; None where it cannot be told, which counts as yes.

    A refused connection is a no: a broker listens there from the moment it has read its settings.
    """
    host = f"[{pod_ip}]" if ":" in pod_ip else pod_ip
    try:
        async with session.get(
            f"http://{host}:{HTTP_PORT}/healthz", timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)
        ) as response:
            answer = json.loads(await response.read())
    except aiohttp.ClientConnectorError as error:
        return False if isinstance(error.os_error, ConnectionRefusedError) else None
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
        return None
    return isinstance(answer, dict) and answer.get("state") == LOADING
