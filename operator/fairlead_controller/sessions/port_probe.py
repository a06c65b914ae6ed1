"""Connects to a port to see whether a process listens: tells a dead process from a slow one."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from fairlead_model.broker import Endpoint

PROBE_TIMEOUT_S: Final = 0.1


async def is_refused(endpoints: Sequence[Endpoint]) -> bool:
    """Tell whether the process behind these endpoints is certainly gone.

    Only a refused connection counts: silence may mean a broken network or a full queue.
    """
    internal = [endpoint for endpoint in endpoints if endpoint.is_internal]
    for endpoint in internal or list(endpoints)[:1]:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        except ConnectionRefusedError:
            return True
        except (OSError, TimeoutError, UnicodeError):
            # The last is what Python says of a host that is no name in DNS.
            return False
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    return False
