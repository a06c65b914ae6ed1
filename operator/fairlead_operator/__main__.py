"""`python -m fairlead_operator`: turns resources into brokers and topics, and reports status.

It waits until the controller of its own pod is active, acts while that is so, and then ends; its
supervisor starts it again. Exit codes: 0 the controller is no longer active, or the process was
told to stop, 2 the environment is not usable.
"""

import asyncio
import logging
import os
import sys
from pathlib import Path

from fairlead_controller.kubernetes.acting_lock import acting, lock_path
from fairlead_kube.client import KubeClient
from fairlead_kube.credentials import Credentials, load_credentials
from fairlead_kube.errors import CredentialsError
from fairlead_kube.request_families import ApiRequests
from fairlead_operator.controller_client import ControllerClient
from fairlead_operator.health import HealthServer
from fairlead_operator.metrics import OperatorMetrics
from fairlead_operator.reign_watch import still_reigns, wait_until_active
from fairlead_operator.settings import (
    API_CONNECT_TIMEOUT_S,
    API_TIMEOUT_S,
    OperatorSettings,
    SettingsError,
    read_settings,
)
from fairlead_operator.stop_signals import StopSignals, end_all_tasks

logger = logging.getLogger("fairlead_operator")


async def run(settings: OperatorSettings) -> int:
    """Run one reign, or until asked to stop; return the exit code."""
    signals = StopSignals()
    await signals.run(_run(settings, signals))
    return 0


def build_client(credentials: Credentials) -> KubeClient:
    """Return the client of all that this process asks of the API server; in a running loop."""
    return KubeClient(
        credentials,
        request_timeout_s=API_TIMEOUT_S,
        connect_timeout_s=API_CONNECT_TIMEOUT_S,
    )


async def _run(settings: OperatorSettings, signals: StopSignals) -> None:
    metrics = OperatorMetrics()
    controller = ControllerClient(settings.controller_socket)
    client = build_client(load_credentials())
    metrics.registry.register(ApiRequests({"operator": client}))

    def refresh() -> None:
        metrics.controller_reachable.set(controller.is_reachable)
        metrics.api_failing_since.set(client.counters.failing_since or 0)

    health = HealthServer(
        metrics, refresh, is_api_away=lambda: client.counters.failing_since is not None
    )
    try:
        await health.start(settings.http_port)
        logger.info("standing by")
        identity = await wait_until_active(controller)
        # Imported now: a standby pod does without kopf's memory.
        from fairlead_operator.active_operator import ActiveOperator

        async with acting(lock_path(Path(settings.controller_socket))):
            if not await still_reigns(controller, identity):
                logger.info("ending: the reign was over before anything was done")
                return
            metrics.is_active.set(1)
            logger.info("active as %s", identity)
            reign = ActiveOperator(
                client, controller, settings, metrics=metrics, health=health, identity=identity
            )
            logger.info("ending: %s", await reign.run(signals))
    finally:
        await health.stop()
        await controller.close()
        await client.close()


def main() -> int:
    """Run the operator; return the exit code."""
    try:
        settings = read_settings(os.environ)
        logging.basicConfig(
            level=settings.log_level,
            stream=sys.stderr,
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        )
        with asyncio.Runner() as runner:
            code = runner.run(run(settings))
            if not runner.run(end_all_tasks()):
                # The runner would wait for them; they are named in the log.
                logging.shutdown()
                os._exit(code)
        return code
    except (SettingsError, CredentialsError) as error:
        print(f"fairlead-operator: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
