"""Resolving the regular expressions of groups beside the event loop, one group at a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fairlead_broker.group.consumer.topic_patterns import match_topics
from fairlead_broker.limits import RESOLVED_TOPICS_A_TURN

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


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

        `may_describe` tells which of them whoever asks may know of; None where that is all. It is
        asked on the loop, once for each name that a pattern matches. KafkaError as
        `check_pattern`, which each pattern passes that a member has.
        """
        async with self._turn:
            matched = await asyncio.to_thread(match_topics, patterns, names)
        if may_describe is None:
            return matched
        known = set()
        for asked, name in enumerate(sorted(frozenset().union(*matched.values())), start=1):
            if may_describe(name):
                known.add(name)
            if asked % RESOLVED_TOPICS_A_TURN == 0:
                await asyncio.sleep(0)
        return {pattern: mine & known for pattern, mine in matched.items()}
