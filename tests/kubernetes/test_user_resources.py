"""User resources against a real API server: what they give, to whom, and when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from user_bench import Bench, play
from user_stories import STORIES

from fairlead_operator.users import reconciler, user_secrets

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from pathlib import Path

    from fairlead_kube.client import KubeClient

pytestmark = pytest.mark.kubernetes


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_stories(
    run: Callable[[Coroutine[Any, Any, Any]], Any],
    kube: KubeClient,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    story: Callable[[Bench], Awaitable[None]],
) -> None:
    for module in (reconciler, user_secrets):
        monkeypatch.setattr(module, "SOURCE_LOOK_S", 0.2)
    play(run, kube, namespace, tmp_path, story, **STORIES[story])
