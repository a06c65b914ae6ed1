"""The API for the pod's other process, and for people with `ask`: HTTP, JSON, a unix socket.

| request | answer |
|---|---|
| GET /v1/state | role, identity and, by cluster, controllerEpoch, storeAvailable, problem, |
|   | isRolledBack, interruptions, lastInterruption |
| GET /v1/clusters/NS/NAME/status | brokers, topics and counts |
| GET …/topics/TOPIC | one topic with each of its partitions |
| GET …/topics?since=E.S&wait_ms=N | position, isFull, topics, removed: waits for changes |
| POST …/topics | what became of each Topic resource (`topic_resources`) |
| POST …/users | what became of each User resource (`user_resource_calls`) |
| POST …/assignment, …/reassignments, …/elections | `reassignment_calls` |
| POST …/configs {"configs"} | nothing, once brokers' dynamic configs are as the LogCluster says |
| POST …/brokers/ID/drain {"on"} | remainingLeaders |
| POST …/brokers/ID/fence {"reason"} | nothing, once it is out of service; null: in service again |
| DELETE …/brokers/ID | nothing, once the broker is unregistered |
| POST …/pools/POOL/scale-down {"leaving", "staying"} | problem: why brokers cannot be emptied |
| POST …/brokers/ID/fault {"fault", "durationMs", "stallMs", "runMs"} | nothing, once agreed |
| GET, POST …/intents {"action", "object"}, DELETE …/intents/ID | the open ones; id |
| GET …/loss?brokers=1,2 | what the loss of these brokers would do now |
| GET …/explain/TOPIC/PARTITION, …/moves?since_ms=N | the journal of decisions |

A standby answers 503 with `{"role": "standby"}` to all but the first request. The answer is 503
with the problem for a cluster that has not been taken over yet, 404 for an unknown cluster, 409 for
a refusal, 400 for a malformed request.
"""

import asyncio
import json
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any, Final, Protocol

from aiohttp import web

from fairlead_controller.decisions.events import (
    ClearIntent,
    DeclareBrokerConfigs,
    RecordIntent,
    ScaleDownPool,
)
from fairlead_controller.decisions.ordered_fencing import fence_by_order
from fairlead_controller.kubernetes.cluster_pages import explain, loss_page, status_of, topic_page
from fairlead_controller.kubernetes.reassignment_calls import (
    ReassignmentRequestError,
    alter_reassignments,
    elect_preferred,
    tell_assignment,
)
from fairlead_controller.kubernetes.reign import Reign, ReignParts
from fairlead_controller.kubernetes.session_gate import ClusterKey
from fairlead_controller.kubernetes.supervisor_pipe import SupervisorPipe
from fairlead_controller.kubernetes.topic_resource_calls import (
    TopicDefaults,
    TopicRequestError,
    apply_topics,
)
from fairlead_controller.kubernetes.user_resource_calls import UserRequestError, apply_users
from fairlead_model.ids import BrokerId
from fairlead_model.session.refusals import RefusalCode, RefusedError

REQUEST_BYTES_MAX: Final = 64 << 20
WAIT_MS_MAX: Final = 60_000
TEXT_LENGTH_MAX: Final = 500
FAULTS: Final = frozenset({"kill", "pause", "resume"})
BROKER_FAULTS: Final = FAULTS | {"slow", "fill"}
FAULT_MS_MAX: Final = 600_000

_PASSING: Final = frozenset({RefusalCode.REQUEST_TIMED_OUT, RefusalCode.NOT_CONTROLLER})
_UNKNOWN: Final = frozenset(
    {RefusalCode.BROKER_NOT_AVAILABLE, RefusalCode.UNKNOWN_TOPIC_OR_PARTITION}
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class CandidateView(Protocol):
    """The parts of the process that the API needs."""

    def describe(self) -> dict[str, Any]:
        """Return role, identity and reigns."""
        ...

    @property
    def is_active(self) -> bool:
        """Whether this process holds the Lease."""
        ...

    def find_reign(self, key: ClusterKey) -> Reign | None:
        """Return the reign of a cluster, if this process has one."""
        ...


class AdminApi:
    """Serves the socket of one process."""

    def __init__(
        self,
        candidate: CandidateView,
        *,
        supervisor: SupervisorPipe | None = None,
        allows_drills: bool = False,
    ) -> None:
        self._candidate = candidate
        self._supervisor = supervisor
        self._allows_drills = allows_drills
        self._runner: web.AppRunner | None = None

    async def start(self, path: Path) -> None:
        """Listen; replace a socket file that an earlier process left."""
        application = web.Application(
            client_max_size=REQUEST_BYTES_MAX, middlewares=[_answer_errors]
        )
        cluster = "/v1/clusters/{namespace}/{cluster}"
        application.add_routes(
            [
                web.get("/v1/state", self._state),
                web.post("/v1/fault", self._own_fault),
                web.get(f"{cluster}/status", self._status),
                web.get(f"{cluster}/topics", self._topics),
                web.post(f"{cluster}/topics", self._apply_topics),
                web.get(f"{cluster}/topics/{{topic}}", self._topic),
                web.post(f"{cluster}/users", self._apply_users),
                web.post(f"{cluster}/assignment", self._assignment),
                web.post(f"{cluster}/reassignments", self._reassignments),
                web.post(f"{cluster}/elections", self._elections),
                web.post(f"{cluster}/configs", self._declare_configs),
                web.post(f"{cluster}/brokers/{{broker:[0-9]{{1,10}}}}/drain", self._drain),
                web.post(f"{cluster}/brokers/{{broker:[0-9]{{1,10}}}}/fence", self._fence),
                web.post(f"{cluster}/brokers/{{broker:[0-9]{{1,10}}}}/fault", self._fault),
                web.delete(f"{cluster}/brokers/{{broker:[0-9]{{1,10}}}}", self._unregister),
                web.post(f"{cluster}/pools/{{pool}}/scale-down", self._scale_down),
                web.get(f"{cluster}/intents", self._intents),
                web.post(f"{cluster}/intents", self._record_intent),
                web.delete(f"{cluster}/intents/{{intent}}", self._clear_intent),
                web.get(f"{cluster}/explain/{{topic}}/{{partition:[0-9]{{1,10}}}}", self._explain),
                web.get(f"{cluster}/moves", self._moves),
                web.get(f"{cluster}/loss", self._loss),
            ]
        )
        runner = web.AppRunner(
            application, access_log=None, handle_signals=False, shutdown_timeout=0.2
        )
        await runner.setup()
        self._runner = runner
        _clear_the_way(path)
        await web.UnixSite(runner, str(path)).start()
        # Only for processes of this user: whoever may use the socket controls the cluster.
        os.chmod(path, 0o600)  # noqa: PTH101

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    def _reign(self, request: web.Request) -> Reign:
        if not self._candidate.is_active:
            raise _AnswerError(503, role="standby", message="another candidate is active")
        key = (request.match_info["namespace"], request.match_info["cluster"])
        reign = self._candidate.find_reign(key)
        if reign is None:
            raise _AnswerError(404, message=f"there is no LogCluster {key[0]}/{key[1]}")
        return reign

    def _parts(self, request: web.Request) -> ReignParts:
        reign = self._reign(request)
        if reign.parts is None:
            raise _AnswerError(503, message=reign.problem)
        return reign.parts

    async def _state(self, request: web.Request) -> web.Response:
        return web.json_response(self._candidate.describe())

    async def _status(self, request: web.Request) -> web.Response:
        return web.json_response(await status_of(self._parts(request)))

    async def _topic(self, request: web.Request) -> web.Response:
        return web.json_response(topic_page(self._parts(request), request))

    async def _topics(self, request: web.Request) -> web.Response:
        wait_ms = min(_number(request.query.get("wait_ms", "0")), WAIT_MS_MAX)
        feed = self._parts(request).feed
        return web.json_response(await feed.changes(request.query.get("since", ""), wait_ms / 1000))

    async def _apply_topics(self, request: web.Request) -> web.Response:
        body = await _body(request)
        reign, parts = self._reign(request), self._parts(request)
        defaults = TopicDefaults(
            reign.spec.default_partitions, reign.spec.default_replication_factor
        )
        waits_for = parts.arrivals.wait()
        return web.json_response(await apply_topics(parts.controller, body, defaults, waits_for))

    async def _apply_users(self, request: web.Request) -> web.Response:
        body, parts = await _body(request), self._parts(request)
        return web.json_response(await apply_users(parts.controller, parts.sessions, body))

    async def _assignment(self, request: web.Request) -> web.Response:
        body, controller = await _body(request), self._parts(request).controller
        return web.json_response(await tell_assignment(controller, body))

    async def _reassignments(self, request: web.Request) -> web.Response:
        body, controller = await _body(request), self._parts(request).controller
        return web.json_response(await alter_reassignments(controller, body))

    async def _elections(self, request: web.Request) -> web.Response:
        body, controller = await _body(request), self._parts(request).controller
        return web.json_response(await elect_preferred(controller, body))

    async def _declare_configs(self, request: web.Request) -> web.Response:
        configs = (await _body(request)).get("configs")
        if not isinstance(configs, dict) or not all(map(_is_text, configs.values())):
            raise _AnswerError(400, message='"configs" has to map names to texts')
        event = DeclareBrokerConfigs(request.match_info["cluster"], configs)
        await self._parts(request).controller.submit(event)
        return web.json_response({})

    async def _drain(self, request: web.Request) -> web.Response:
        body = await _body(request)
        parts, broker_id = self._broker(request)
        if not isinstance(body.get("on"), bool):
            raise _AnswerError(400, message='"on" has to be true or false')
        remaining = await parts.drains.set_by_hand(broker_id, is_draining=body["on"])
        return web.json_response({"remainingLeaders": remaining})

    async def _fence(self, request: web.Request) -> web.Response:
        reason = (await _body(request)).get("reason")
        parts, broker_id = self._broker(request)
        if reason is not None and not (_is_text(reason) and reason.strip()):
            raise _AnswerError(400, message='"reason" has to be a text, or null')
        (answer,) = (await parts.controller.submit(fence_by_order(broker_id, reason)))["resources"]
        if answer["error_code"]:
            code = RefusalCode(answer["error_code"])
            raise RefusedError(code, answer["error_message"] or code.name)
        return web.json_response({})

    async def _scale_down(self, request: web.Request) -> web.Response:
        body = await _body(request)
        event = ScaleDownPool(
            pool=request.match_info["pool"],
            leaving=_brokers(body, "leaving"),
            staying=_brokers(body, "staying"),
            at_ms=time.time_ns() // 1_000_000,
        )
        reply = await self._parts(request).controller.submit(event)
        return web.json_response({"problem": reply["problem"]})

    async def _unregister(self, request: web.Request) -> web.Response:
        parts, broker_id = self._broker(request)
        await parts.sessions.unregister(broker_id)
        return web.json_response({})

    async def _fault(self, request: web.Request) -> web.Response:
        body = await _body(request)
        parts, broker_id = self._broker(request)
        fault, duration_ms = _read_fault(body, BROKER_FAULTS)
        turns = _read_ms(body, "stallMs"), _read_ms(body, "runMs")
        await parts.sessions.inject_fault(broker_id, fault, duration_ms, turns)
        return web.json_response({})

    async def _own_fault(self, request: web.Request) -> web.Response:
        """Kill or stop this process, by its supervisor, which also resumes it."""
        fault, duration_ms = _read_fault(await _body(request), FAULTS)
        if not self._candidate.is_active:
            raise _AnswerError(503, role="standby", message="another candidate is active")
        if not self._allows_drills:
            message = "drills of the controller are not allowed: drills.controller of the chart"
            raise _AnswerError(409, message=message)
        if self._supervisor is None:
            message = "this controller runs without the supervisor that carries out faults"
            raise _AnswerError(409, message=message)
        self._supervisor.carry_out(fault, duration_ms)
        return web.json_response({})

    async def _loss(self, request: web.Request) -> web.Response:
        texts = request.query.get("brokers", "").split(",")
        if not all(text.isdecimal() for text in texts):
            raise _AnswerError(400, message='"brokers" are ids, such as 1,2')
        state = self._parts(request).controller.committed
        return web.json_response(await asyncio.to_thread(loss_page, state, set(map(int, texts))))

    def _broker(self, request: web.Request) -> tuple[ReignParts, BrokerId]:
        parts = self._parts(request)
        broker_id = int(request.match_info["broker"])
        if broker_id not in parts.controller.committed.image.brokers:
            raise _AnswerError(404, message=f"there is no broker {broker_id}")
        return parts, broker_id

    async def _intents(self, request: web.Request) -> web.Response:
        intents = self._parts(request).controller.committed.intents
        return web.json_response(
            {
                "intents": [
                    {"id": key, "action": each.action, "object": each.target, "atMs": each.at_ms}
                    for key, each in intents.items()
                ]
            }
        )

    async def _record_intent(self, request: web.Request) -> web.Response:
        body = await _body(request)
        event = RecordIntent(
            secrets.token_hex(8),
            _text(body, "action"),
            _text(body, "object"),
            time.time_ns() // 1_000_000,
        )
        reply = await self._parts(request).controller.submit(event)
        return web.json_response({"id": reply["id"]})

    async def _clear_intent(self, request: web.Request) -> web.Response:
        controller = self._parts(request).controller
        reply = await controller.submit(ClearIntent(request.match_info["intent"]))
        if not reply["was_known"]:
            raise _AnswerError(404, message="there is no such intent")
        return web.json_response({})

    async def _explain(self, request: web.Request) -> web.Response:
        return web.json_response(explain(self._parts(request), request))

    async def _moves(self, request: web.Request) -> web.Response:
        journal = self._parts(request).controller.journal
        return web.json_response(journal.since(_number(request.query.get("since_ms", "0"))))


class _AnswerError(Exception):
    """An answer that is not a success."""

    def __init__(self, status: int, **fields: str) -> None:
        super().__init__(fields.get("message", ""))
        self.status = status
        self.fields = fields


@web.middleware
async def _answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except _AnswerError as problem:
        return web.json_response(problem.fields, status=problem.status)
    except (TopicRequestError, UserRequestError, ReassignmentRequestError) as error:
        return web.json_response({"message": str(error)}, status=400)
    except RefusedError as refusal:
        status = 409
        if refusal.code in _PASSING:
            status = 503
        elif refusal.code in _UNKNOWN:
            status = 404
        return web.json_response(
            {"message": refusal.message, "reason": refusal.code.name}, status=status
        )
    except web.HTTPException as error:
        return web.json_response({"message": error.reason}, status=error.status)


def _clear_the_way(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)


def _read_fault(body: dict[str, Any], faults: Collection[str]) -> tuple[str, int]:
    fault = body.get("fault")
    if fault not in faults:
        raise _AnswerError(400, message=f'"fault" is one of {", ".join(sorted(faults))}')
    return str(fault), _read_ms(body, "durationMs")


def _read_ms(body: dict[str, Any], name: str) -> int:
    number = body.get(name, 0)
    if not isinstance(number, int) or not 0 <= number <= FAULT_MS_MAX:
        raise _AnswerError(400, message=f'"{name}" is a number up to {FAULT_MS_MAX}')
    return number


async def _body(request: web.Request) -> dict[str, Any]:
    content = await request.read()
    try:
        body = await asyncio.to_thread(json.loads, content) if content else {}
    except ValueError as error:
        raise _AnswerError(400, message=f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise _AnswerError(400, message="the body has to be a JSON object")
    return body


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= TEXT_LENGTH_MAX:
        raise _AnswerError(400, message=f'"{name}" has to be a text')
    return value


def _brokers(body: dict[str, Any], name: str) -> frozenset[BrokerId]:
    ids = body.get(name)
    if not isinstance(ids, list) or not all(isinstance(each, int) for each in ids):
        raise _AnswerError(400, message=f'"{name}" has to be a list of broker ids')
    return frozenset(ids)


def _number(value: str) -> int:
    if not value.isdecimal():
        raise _AnswerError(400, message=f"{value!r} is not a number")
    return int(value)
