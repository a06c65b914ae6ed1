"""Sends requests to a drill's pod over HTTP. Every request may be repeated."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from fairlead_operator.drills.agent_answer import read_agent_state
from fairlead_operator.drills.agent_pod import AGENT_PORT
from fairlead_operator.drills.observations import AgentState
from fairlead_operator.pod_http import PodAnswerError, ask_pod

REQUEST_TIMEOUT_S: Final = 2.0


class AgentError(Exception):
    """The pod did not carry out a request, or does not answer; the text says why."""


class AgentClient:
    """The client of all drills' pods."""

    async def state(self, agent: "AgentAddress") -> AgentState:
        """Request the whole state."""
        return await self._ask(agent, "GET", "/state")

    async def begin(
        self, agent: "AgentAddress", number: int, broker_ids: Iterable[int], memo: Mapping[str, Any]
    ) -> AgentState:
        """Tell the pod which brokers are broken next."""
        body = {"brokerIds": sorted(broker_ids), "memo": dict(memo)}
        return await self._ask(agent, "POST", f"/runs/{number}", body)

    async def tell(
        self, agent: "AgentAddress", number: int, what: Literal["injected", "end", "forget"]
    ) -> AgentState:
        """Tell the pod how far a run is."""
        return await self._ask(agent, "POST", f"/runs/{number}/{what}")

    async def verify(self, agent: "AgentAddress") -> AgentState:
        """Request the verdict."""
        return await self._ask(agent, "POST", "/verify")

    async def _ask(
        self, agent: "AgentAddress", method: str, path: str, body: object = None
    ) -> AgentState:
        host, token = agent
        try:
            answer = await ask_pod(
                host,
                AGENT_PORT,
                path,
                method=method,
                body=body,
                headers={"Authorization": f"Bearer {token}"},
                timeout_s=REQUEST_TIMEOUT_S,
            )
            content = answer.json()
            if answer.status != 200:
                raise AgentError(f"{path}: {str(content.get('error', answer.status))[:500]}")
            return read_agent_state(content)
        except PodAnswerError as error:
            raise AgentError(f"{path}: {error}") from error
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise AgentError(f"{path}: an answer of another version: {error!r}") from error


AgentAddress = tuple[str, str]
"""The pod's IP address, and the token."""
