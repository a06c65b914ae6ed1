"""Asks a broker that is not ready whether it recovers its logs; if so, it must not be stopped."""

from typing import Final

from fairlead_operator.pod_http import PodAnswerError, ask_pod
from fairlead_operator.specs.names import HTTP_PORT

TIMEOUT_S: Final = 1.0
LOADING: Final = "loading"


async def probe_recovery(pod_ip: str) -> bool | None:
    """Tell whether the broker recovers; None if that is unknown, which counts as yes.

    A refused connection means no: a broker listens there as soon as it has read its settings.
    """
    try:
        answer = (await ask_pod(pod_ip, HTTP_PORT, "/healthz", timeout_s=TIMEOUT_S)).json()
    except PodAnswerError as error:
        return False if error.is_refused else None
    return isinstance(answer, dict) and answer.get("state") == LOADING
