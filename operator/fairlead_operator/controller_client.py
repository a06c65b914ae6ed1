"""Asks the controller of this pod over its unix socket: HTTP and JSON.

Questions are repeated while the controller restarts, for at most `retry_s`; orders (drain, fault,
intent) too, because each may arrive twice without harm. If the controller is not active, nothing is
repeated: the caller ends what it does and waits for the next reign.
"""

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import quote

import aiohttp

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_S: Final = 10.0
RETRY_DELAY_S: Final = 0.25
ASSIGNMENT_TIMEOUT_S: Final = 30.0
"""Of a cluster with many partitions it is some megabytes."""
FAULT_TIMEOUT_S: Final = 1.0
MESSAGE_LENGTH_MAX: Final = 500
DELETE_POD: Final = "delete-pod"
"""The action of an intent to delete pods; its object is their names."""

JsonObject = dict[str, Any]


class ControllerError(Exception):
    """The controller did not do what it was asked; the text says why."""


class ControllerUnavailableError(ControllerError):
    """The controller does not answer on the socket, or not in time."""


class ControllerStandbyError(ControllerError):
    """The controller of this pod does not hold the Lease: the caller must stop."""


class ControllerRefusedError(ControllerError):
    """The controller is active and refuses; `status` is that of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_unknown(self) -> bool:
        """Whether the controller does not know the cluster, broker or topic (yet)."""
        return self.status == 404


@dataclass(frozen=True, slots=True)
class ReignState:
    """The controller's state for one cluster."""

    controller_epoch: int
    store_available: bool
    problem: str = ""
    is_rolled_back: bool = False
    """Whether its tables are older than what was seen of them."""
    interruptions: int = 0
    """How often its tables were changed by others while it was active."""
    last_interruption: str = ""


@dataclass(frozen=True, slots=True)
class CandidateState:
    """State of the controller process; the keys of `clusters` are NAMESPACE/NAME."""

    role: str
    identity: str
    clusters: Mapping[str, ReignState]

    @property
    def is_active(self) -> bool:
        """Whether it holds the Lease."""
        return self.role == "active"


@dataclass(frozen=True, slots=True)
class TopicChanges:
    """The changes of a cluster's topics since a position."""

    position: str
    is_full: bool
    topics: Sequence[JsonObject]
    removed: Sequence[str]


class ControllerClient:
    """Made in a running loop; every method raises a ControllerError on failure."""

    def __init__(self, socket_path: str, *, retry_s: float = 2.0) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(path=socket_path, limit=0),
            timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S),
        )
        self._retry_s = retry_s
        self.is_reachable = False
        """Whether the last request got an answer."""

    async def close(self) -> None:
        """Give up the connections."""
        await self._session.close()

    async def state(self) -> CandidateState:
        """Ask whether the controller is active, and for its clusters; not repeated."""
        answer = await self._exchange("GET", "/v1/state", None, None, REQUEST_TIMEOUT_S)
        clusters = {
            name: ReignState(
                controller_epoch=int(reign.get("controllerEpoch") or 0),
                store_available=bool(reign.get("storeAvailable")),
                problem=str(reign.get("problem") or ""),
                is_rolled_back=bool(reign.get("isRolledBack")),
                interruptions=int(reign.get("interruptions") or 0),
                last_interruption=str(reign.get("lastInterruption") or ""),
            )
            for name, reign in (answer.get("clusters") or {}).items()
        }
        return CandidateState(str(answer.get("role")), str(answer.get("identity", "")), clusters)

    async def cluster_status(self, namespace: str, cluster: str) -> JsonObject:
        """Return brokers, topics and counts of a cluster (`fairlead_controller.views.status`)."""
        return await self._ask("GET", _cluster_path(namespace, cluster, "status"))

    async def topics(
        self, namespace: str, cluster: str, *, since: str = "", wait_ms: int = 0
    ) -> TopicChanges:
        """Wait for changes of topics; return everything without `since`, or if it is too old."""
        params = {"wait_ms": str(wait_ms)} | ({"since": since} if since else {})
        answer = await self._ask(
            "GET",
            _cluster_path(namespace, cluster, "topics"),
            params=params,
            timeout_s=REQUEST_TIMEOUT_S + wait_ms / 1000,
        )
        return TopicChanges(
            position=str(answer["position"]),
            is_full=bool(answer["isFull"]),
            topics=answer["topics"],
            removed=answer["removed"],
        )

    async def apply_topics(self, namespace: str, cluster: str, request: JsonObject) -> JsonObject:
        """Apply Topic resources; return the result for each of them."""
        path = _cluster_path(namespace, cluster, "topics")
        answer = await self._ask("POST", path, body=request, timeout_s=60.0)
        results: JsonObject = answer["results"]
        return results

    async def apply_users(self, namespace: str, cluster: str, request: JsonObject) -> JsonObject:
        """Apply and forget User resources; return what became of each, by its name."""
        path = _cluster_path(namespace, cluster, "users")
        answer = await self._ask("POST", path, body=request)
        return dict(answer["results"])

    async def assignment(
        self, namespace: str, cluster: str, topics: Sequence[str] | None
    ) -> JsonObject:
        """Return where partitions are, of all topics or of those that are named.

        `fairlead_controller.views.assignment` reads it.
        """
        path = _cluster_path(namespace, cluster, "assignment")
        body = {"topics": None if topics is None else list(topics)}
        return await self._ask("POST", path, body=body, timeout_s=ASSIGNMENT_TIMEOUT_S)

    async def alter_reassignments(
        self, namespace: str, cluster: str, partitions: Sequence[JsonObject]
    ) -> list[JsonObject]:
        """Begin reassignments, or call them back; return what is refused."""
        return await self._ask_partitions(namespace, cluster, "reassignments", partitions)

    async def elect_preferred(
        self, namespace: str, cluster: str, partitions: Sequence[JsonObject]
    ) -> list[JsonObject]:
        """Let the preferred leaders of partitions lead; return those that cannot."""
        return await self._ask_partitions(namespace, cluster, "elections", partitions)

    async def _ask_partitions(
        self, namespace: str, cluster: str, what: str, partitions: Sequence[JsonObject]
    ) -> list[JsonObject]:
        path = _cluster_path(namespace, cluster, what)
        answer = await self._ask("POST", path, body={"partitions": list(partitions)})
        return list(answer["refused"])

    async def declare_configs(
        self, namespace: str, cluster: str, configs: Mapping[str, str]
    ) -> None:
        """Give all brokers the dynamic configs of their LogCluster, and unset those of before."""
        path = _cluster_path(namespace, cluster, "configs")
        await self._ask("POST", path, body={"configs": dict(configs)})

    async def drain(self, namespace: str, cluster: str, broker_id: int, *, on: bool) -> None:
        """Move the leaders off a broker and keep them off, or let them come back."""
        path = _cluster_path(namespace, cluster, f"brokers/{broker_id}/drain")
        await self._ask("POST", path, body={"on": on})

    async def fence(self, namespace: str, cluster: str, broker_id: int, reason: str | None) -> None:
        """Take a broker out of service for a reason; with None let it be in service again."""
        path = _cluster_path(namespace, cluster, f"brokers/{broker_id}/fence")
        await self._ask("POST", path, body={"reason": reason})

    async def scale_down(
        self,
        namespace: str,
        cluster: str,
        pool: str,
        *,
        leaving: Sequence[int],
        staying: Sequence[int],
    ) -> str:
        """Empty the brokers that a pool gives up; return what is in the way, empty if nothing is.

        Those that stay are filled again if they were to leave before.
        """
        path = _cluster_path(namespace, cluster, f"pools/{quote(pool, safe='')}/scale-down")
        body = {"leaving": list(leaving), "staying": list(staying)}
        answer = await self._ask("POST", path, body=body)
        return str(answer.get("problem") or "")

    async def unregister(self, namespace: str, cluster: str, broker_id: int) -> None:
        """Let the controller forget a broker that is gone for good; ignore one it does not know."""
        try:
            await self._ask("DELETE", _cluster_path(namespace, cluster, f"brokers/{broker_id}"))
        except ControllerRefusedError as error:
            if not error.is_unknown:
                raise

    async def inject_fault(
        self,
        namespace: str,
        cluster: str,
        broker_id: int,
        fault: Literal["kill", "pause", "resume", "slow", "fill"],
        *,
        duration_ms: int = 0,
        turns: tuple[int, int] = (0, 0),
    ) -> None:
        """Let a broker's supervisor kill, stop, wake or stall its process, or fill its disk.

        `turns`: for how many milliseconds a slow process stands still, and then runs.
        """
        path = _cluster_path(namespace, cluster, f"brokers/{broker_id}/fault")
        body: JsonObject = {"fault": fault, "durationMs": duration_ms}
        if fault == "slow":
            body |= {"stallMs": turns[0], "runMs": turns[1]}
        await self._ask("POST", path, body=body)

    async def break_controller(
        self, fault: Literal["kill", "pause"], *, duration_ms: int = 0
    ) -> None:
        """Let the controller's own supervisor kill or stop it; not repeated.

        It may be gone before it can answer, which is no failure: its successor's epoch proves what
        happened.
        """
        body = {"fault": fault, "durationMs": duration_ms}
        try:
            await self._exchange("POST", "/v1/fault", body, None, FAULT_TIMEOUT_S)
        except ControllerUnavailableError as error:
            logger.info("%s of the controller: %s", fault, error)

    async def record_intent(self, namespace: str, cluster: str, action: str, target: str) -> str:
        """Make durable that an act follows which no write fences; return the intent's id."""
        path = _cluster_path(namespace, cluster, "intents")
        answer = await self._ask("POST", path, body={"action": action, "object": target})
        return str(answer.get("id", ""))

    async def intents(self, namespace: str, cluster: str) -> list[JsonObject]:
        """Return the open intents: `id`, `action`, `object` and `atMs` of each."""
        answer = await self._ask("GET", _cluster_path(namespace, cluster, "intents"))
        return list(answer["intents"])

    async def clear_intent(self, namespace: str, cluster: str, intent_id: str) -> None:
        """Forget an intent that was carried out; ignore one that does not exist."""
        path = _cluster_path(namespace, cluster, f"intents/{quote(intent_id, safe='')}")
        try:
            await self._ask("DELETE", path)
        except ControllerRefusedError as error:
            if not error.is_unknown:
                raise

    async def explain(self, namespace: str, cluster: str, topic: str, partition: int) -> JsonObject:
        """Say why a partition has its leader."""
        path = _cluster_path(namespace, cluster, f"explain/{quote(topic, safe='')}/{partition}")
        return await self._ask("GET", path)

    async def loss(self, namespace: str, cluster: str, brokers: Iterable[int]) -> JsonObject:
        """Return what the loss of brokers would do to partitions now: counts."""
        path = _cluster_path(namespace, cluster, "loss")
        params = {"brokers": ",".join(map(str, sorted(brokers)))}
        return await self._ask("GET", path, params=params)

    async def moves(self, namespace: str, cluster: str, *, since_ms: int) -> JsonObject:
        """Return the controller's decisions since a moment (Unix time)."""
        path = _cluster_path(namespace, cluster, "moves")
        return await self._ask("GET", path, params={"since_ms": str(since_ms)})

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        body: JsonObject | None = None,
        params: Mapping[str, str] | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> JsonObject:
        """Send a request; repeat it while there is no answer."""
        deadline = asyncio.get_running_loop().time() + self._retry_s
        while True:
            try:
                return await self._exchange(method, path, body, params, timeout_s)
            except ControllerUnavailableError:
                if asyncio.get_running_loop().time() + RETRY_DELAY_S > deadline:
                    raise
            await asyncio.sleep(RETRY_DELAY_S)

    async def _exchange(
        self,
        method: str,
        path: str,
        body: JsonObject | None,
        params: Mapping[str, str] | None,
        timeout_s: float,
    ) -> JsonObject:
        try:
            async with self._session.request(
                method,
                f"http://controller{path}",
                json=body,
                params=params,
                timeout=aiohttp.ClientTimeout(total=timeout_s),
            ) as response:
                content = await response.read()
                status = response.status
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self.is_reachable = False
            what = "no answer in time" if isinstance(error, TimeoutError) else str(error)
            raise ControllerUnavailableError(f"the controller: {what}") from error
        self.is_reachable = True
        return _read_answer(status, content)


def _read_answer(status: int, content: bytes) -> JsonObject:
    try:
        answer = json.loads(content) if content else {}
    except ValueError:
        answer = {"message": content.decode(errors="replace")}
    if not isinstance(answer, dict):
        raise ControllerUnavailableError("the controller answered with something unexpected")
    if status < 300:
        return answer
    if status == 503 and answer.get("role") == "standby":
        raise ControllerStandbyError("this pod's controller does not hold the Lease")
    message = str(answer.get("message") or answer.get("error") or answer.get("reason") or status)
    message = message[:MESSAGE_LENGTH_MAX]
    if status >= 500:
        raise ControllerUnavailableError(f"the controller: {message}")
    raise ControllerRefusedError(status, message)


def _cluster_path(namespace: str, cluster: str, rest: str) -> str:
    return f"/v1/clusters/{quote(namespace, safe='')}/{quote(cluster, safe='')}/{rest}"
