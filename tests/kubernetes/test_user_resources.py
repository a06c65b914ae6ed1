"""User resources against a real API server: what they give, to whom, and when it ends."""

from __future__ import annotations

import pytest
from user_bench import play
from user_stories import STORIES

from fairlead_operator.users import reconciler, user_secrets

pytestmark = pytest.mark.kubernetes


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_stories(run, kube, namespace, tmp_path, monkeypatch, story) -> None:
    for module in (reconciler, user_secrets):
        monkeypatch.setattr(module, "SOURCE_LOOK_S", 0.2)
    play(run, kube, namespace, tmp_path, story, **STORIES[story])
