"""`python -m fairlead_operator`: turns resources into brokers and topics, and reports status.

It waits until the controller of its own pod is active, acts while it is, and ends when it no longer
is; its supervisor starts it again. Exit codes: 0 the reign is over or it was asked to stop, 2 the
environment is not usable.
"""

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

from fairlead_controller.kubernetes.acting_lock import acting, lock_path
from fairlead_kube.client import KubeClient
from fairlead_kube.credentials import load_credentials
from fairlead_kube.errors import CredentialsError
from fairlead_kube.request_families import ApiRequests
from fairlead_operator.controller_client import ControllerClient
from fairlead_operator.health import HealthServer
from fairlead_operator.metrics import OperatorMetrics
from fairlead_operator.reign_watch import still_reigns, wait_until_active
from fairlead_operator.settings import OperatorSettings, SettingsError, read_settings

logger = logging.getLogger("fairlead_operator")
API_TIMEOUT_S = 10.0
"""More than for elections: nothing here is worth a second attempt while the first is under way."""


async def run(settings: OperatorSettings) -> int:
    """Run one reign; return the exit code."""
    metrics = OperatorMetrics()
    controller = ControllerClient(settings.controller_socket)
    client = KubeClient(load_credentials(), request_timeout_s=API_TIMEOUT_S)
    metrics.registry.register(ApiRequests({"operator": client}))

    def refresh() -> None:
        metrics.controller_reachable.set(controller.is_reachable)
        metrics.api_failing_since.set(client.counters.failing_since or 0)

    health = HealthServer(
        metrics, refresh, is_api_away=lambda: client.counters.failing_since is not None
    )
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    try:
        await health.start(settings.http_port)
        logger.info("standing by")
        identity = await _wait_for_reign(controller, stopping)
        if identity is None:
            return 0
        # Imported now: a standby pod does without kopf's memory.
        from fairlead_operator.active_operator import ActiveOperator

        async with acting(lock_path(Path(settings.controller_socket))):
            if not await still_reigns(controller, identity):
                logger.info("ending: the reign was over before anything was done")
                return 0
            metrics.is_active.set(1)
            logger.info("active as %s", identity)
            reign = ActiveOperator(
                client, controller, settings, metrics=metrics, health=health, identity=identity
            )
            logger.info("ending: %s", await reign.run(stopping))
        return 0
    finally:
        await health.stop()
        await controller.close()
        await client.close()


async def _wait_for_reign(controller: ControllerClient, stopping: asyncio.Event) -> str | None:
    """Wait for the Lease; return None if asked to stop before."""
    active = asyncio.create_task(wait_until_active(controller))
    stop = asyncio.create_task(stopping.wait())
    await asyncio.wait({active, stop}, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if active.done():
        return active.result()
    active.cancel()
    return None


def main() -> int:
    """Run the operator; return the exit code."""
    try:
        settings = read_settings(os.environ)
        logging.basicConfig(
            level=settings.log_level,
            stream=sys.stderr,
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        )
        return asyncio.run(run(settings))
    except (SettingsError, CredentialsError) as error:
        print(f"fairlead-operator: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
