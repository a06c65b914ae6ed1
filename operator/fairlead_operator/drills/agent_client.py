"""A drill's pod, asked over HTTP. Every question can be asked twice."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import aiohttp

from fairlead_operator.drills.agent_pod import AGENT_PORT
from fairlead_operator.drills.observations import AgentState, read_agent_state

REQUEST_TIMEOUT_S: Final = 2.0


class AgentError(Exception):
    """The pod did not do what it was asked, or nobody answers; the text says why."""


class AgentClient:
    """Made in a running loop, for all drills' pods."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
        )

    async def close(self) -> None:
        """Give up the connections."""
        await self._session.close()

    async def state(self, agent: "AgentAddress") -> AgentState:
        """Ask for everything."""
        return await self._ask(agent, "GET", "/state")

    async def begin(
        self, agent: "AgentAddress", number: int, broker_ids: Iterable[int], memo: Mapping[str, Any]
    ) -> AgentState:
        """Say that these brokers are broken next."""
        body = {"brokerIds": sorted(broker_ids), "memo": dict(memo)}
        return await self._ask(agent, "POST", f"/runs/{number}", body)

    async def tell(
        self, agent: "AgentAddress", number: int, what: Literal["injected", "end", "forget"]
    ) -> AgentState:
        """Say how far a run is."""
        return await self._ask(agent, "POST", f"/runs/{number}/{what}")

    async def verify(self, agent: "AgentAddress") -> AgentState:
        """Ask for the verdict."""
        return await self._ask(agent, "POST", "/verify")

    async def _ask(
        self, agent: "AgentAddress", method: str, path: str, body: object = None
    ) -> AgentState:
        host, token = agent
        try:
            async with self._session.request(
                method,
                f"http://{host}:{AGENT_PORT}{path}",
                json=body,
                headers={"Authorization": f"Bearer {token}"},
            ) as response:
                answer = await response.json()
                if response.status != 200:
                    raise AgentError(f"{path}: {answer.get('error', response.status)}")
                return read_agent_state(answer)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise AgentError(f"{path}: {error!r}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise AgentError(f"{path}: an answer of another version: {error!r}") from error


AgentAddress = tuple[str, str]
"""The host as a URL has it, and the token."""
