"""Resolving the regular expressions of groups beside the event loop, some of one group at a time.

A group may have thousands of them, and some take long: others have their turn between.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from fairlead_broker.group.consumer.topic_patterns import match_in_steps
from fairlead_broker.limits import RESOLVED_TOPICS_A_TURN, RESOLVING_TURN_S

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping


class PatternResolution:
    """Holds one thread at most, however many groups want theirs resolved."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def resolve(
        self,
        patterns: Collection[str],
        names: Collection[str],
        may_describe: Callable[[str], bool] | None,
    ) -> Mapping[str, frozenset[str]]:
        """Return, of these topic names, the ones that each pattern matches.

        `may_describe` tells which of them the user may describe; None: all. It is asked on the
        loop, once for each name that a pattern matches. KafkaError as `check_pattern`, which each
        pattern passes that a member has.
        """
        matched: dict[str, frozenset[str]] = {}
        steps = match_in_steps(patterns, list(names), matched)
        is_done = False
        while not is_done:
            async with self._turn:
                is_done = await asyncio.to_thread(_take_some, steps)
        if may_describe is None:
            return matched
        known = set()
        for asked, name in enumerate(sorted(frozenset().union(*matched.values())), start=1):
            if may_describe(name):
                known.add(name)
            if asked % RESOLVED_TOPICS_A_TURN == 0:
                await asyncio.sleep(0)
        return {pattern: mine & known for pattern, mine in matched.items()}


def _take_some(steps: Iterator[None]) -> bool:
    """Take steps for the time of one turn; tell whether that were the last ones."""
    until_s = monotonic() + RESOLVING_TURN_S
    return all(monotonic() < until_s for _ in steps)
