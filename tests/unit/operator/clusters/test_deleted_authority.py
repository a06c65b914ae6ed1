"""The Secret with a cluster's authority is deleted by somebody."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from certificate_world import World

INSIDE: dict[str, Any] = {"name": "tls", "type": "Internal", "port": 9093, "tls": {}}


def test_an_authority_that_somebody_deletes_comes_back_and_nothing_is_issued_anew() -> None:
    """All clients trust it, and all certificates are from it."""
    world = World(INSIDE)
    assert world.look().news is None
    world.rotate = "done"
    world.spec["certificateAuthority"] = {"overlapDays": 1}
    world.look()
    world.mount()
    before = {key: each["data"] for key, each in world.objects.items()}
    del world.objects["Secret", "demo-ca-key"]
    news = world.look().news
    assert {key: each["data"] for key, each in world.objects.items()} == before
    assert news is not None
    assert news[0] == "AuthorityRestored"
    # The rotation that was asked for had begun, and goes on.
    upcoming = world.pem("next.crt", "demo-ca-key")
    assert upcoming
    world.now += timedelta(days=2)
    assert world.look().news is None
    assert world.authority == upcoming


def test_a_new_authority_under_certificates_of_another_is_told() -> None:
    world = World(INSIDE)
    world.look()
    old = world.authority
    del world.objects["Secret", "demo-ca-key"]
    world.begin_process()
    news = world.look().news
    assert news is not None
    assert news[0] == "AuthorityReplaced"
    assert world.authority != old


def test_another_cluster_of_the_name_gets_an_authority_of_its_own() -> None:
    world = World(INSIDE)
    world.look()
    old = world.authority
    world.objects.clear()
    world.uid = "c-2"
    assert world.look().news is None
    assert world.authority != old
    world.keeper.forget(("shop", "demo"))
    assert not world.keeper._authorities._held
