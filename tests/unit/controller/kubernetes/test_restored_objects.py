"""etcd is put back from a backup, and objects are deleted: what the reign does, and a person."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from reigning_candidate import NAMESPACE, Candidate, play

from fairlead_cli.kubectl.main import plugin
from fairlead_controller.decisions.events import RegisterBroker, UnfenceBroker
from fairlead_controller.decisions.tables.new_beginning import EPOCH_JUMP
from fairlead_controller.stores.kubernetes_transfer import (
    confirm_in_kubernetes,
    export_from_kubernetes,
    import_into_kubernetes,
)
from fairlead_controller.stores.metadata_rewrite import Confirmed, NothingFoundError
from fairlead_controller.stores.metadata_store import SealedError
from fairlead_kube.kinds import CLUSTER_STATE, LOG_CLUSTER, PARTITION_TABLE
from fairlead_model.session.refusals import RefusedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from object_store import ObjectStoreServer

KINDS = (CLUSTER_STATE, PARTITION_TABLE)
Objects = dict[str, dict[str, Any]]


@pytest.fixture
def populate(
    make_registration: Any, make_create: Any, make_topic: Any
) -> Callable[[Candidate], Awaitable[None]]:
    """Give the cluster `a` three brokers and a topic."""

    async def fill(candidate: Candidate) -> None:
        await candidate.reigning("a")
        parts = candidate.reign("a").parts
        assert parts is not None
        for broker_id in range(3):
            await parts.controller.submit(RegisterBroker(make_registration(broker_id), ""))
            await parts.controller.submit(UnfenceBroker(broker_id, broker_id + 1))
        await parts.controller.submit(make_create(make_topic("t", replication_factor=3)))

    return fill


def backup(candidate: Candidate) -> Objects:
    """Copy the objects, as a backup of etcd holds them."""
    return {kind.plural: copy.deepcopy(candidate.objects(kind)) for kind in KINDS}


async def put_back(candidate: Candidate, objects: Objects) -> None:
    """Put objects back as they were; each has another version than ever."""
    for kind in KINDS:
        for name in list(candidate.objects(kind)):
            await candidate.server.remove(candidate.path(kind), name)
        for manifest in objects[kind.plural].values():
            await candidate.client.create(kind, NAMESPACE, manifest)


async def find_out(candidate: Candidate) -> None:
    """Have the controller write on what is not there any more."""
    with pytest.raises(RefusedError):
        await candidate.decide("a")
    await candidate.until(lambda: candidate.reign("a").is_rolled_back)


def cluster_id(candidate: Candidate) -> str:
    parts = candidate.reign("a").parts
    assert parts is not None
    return str(parts.controller.committed.image.cluster_id)


def has_topic(candidate: Candidate) -> bool:
    parts = candidate.reign("a").parts
    return parts is not None and parts.controller.committed.image.topic("t") is not None


def test_objects_that_went_back_are_confirmed(populate: Any) -> None:
    async def story(candidate: Candidate) -> None:
        await populate(candidate)
        before = cluster_id(candidate)
        objects = backup(candidate)
        given = (await candidate.decide("a"))["first_producer_id"]
        client = candidate.client
        with pytest.raises(NothingFoundError):
            await confirm_in_kubernetes(client, NAMESPACE, "a")
        await put_back(candidate, objects)
        await find_out(candidate)
        assert "went back in time" in candidate.reign("a").problem
        held = backup(candidate)[PARTITION_TABLE.plural]

        confirmed = await confirm_in_kubernetes(client, NAMESPACE, "a")
        assert confirmed.cluster_id == before
        assert "went back to write" in confirmed.finding
        assert held.keys() == candidate.objects(PARTITION_TABLE).keys(), "no table is deleted"
        assert await candidate.reigning("a", after=EPOCH_JUMP) > confirmed.controller_epoch
        assert has_topic(candidate)
        assert (await candidate.decide("a"))["first_producer_id"] > given

    play(story, "a")


def test_of_two_people_who_confirm_at_once_one_wins(populate: Any) -> None:
    async def story(candidate: Candidate) -> None:
        await populate(candidate)
        objects = backup(candidate)
        await candidate.decide("a")
        await put_back(candidate, objects)
        await find_out(candidate)
        both = [confirm_in_kubernetes(candidate.client, NAMESPACE, "a") for _ in range(2)]
        ends = await asyncio.gather(*both, return_exceptions=True)
        assert sorted(type(end).__name__ for end in ends) == [
            Confirmed.__name__,
            SealedError.__name__,
        ], ends
        await candidate.reigning("a", after=EPOCH_JUMP)
        assert has_topic(candidate)

    play(story, "a")


def test_where_all_objects_are_gone_an_export_brings_the_cluster_back(populate: Any) -> None:
    async def story(candidate: Candidate) -> None:
        await populate(candidate)
        before = cluster_id(candidate)
        document = await export_from_kubernetes(candidate.client, NAMESPACE, "a")
        await put_back(candidate, {kind.plural: {} for kind in KINDS})
        with pytest.raises(RefusedError):
            await candidate.decide("a")
        # The controller takes it for a new cluster, which no broker of the old one joins.
        await candidate.until(
            lambda: candidate.reign("a").parts and cluster_id(candidate) != before
        )
        restored = await import_into_kubernetes(candidate.client, NAMESPACE, "a", document)
        assert restored.cluster_id == before
        with pytest.raises(RefusedError):
            await candidate.decide("a")
        await candidate.reigning("a", after=EPOCH_JUMP)
        assert cluster_id(candidate) == before
        assert has_topic(candidate)

    play(story, "a")


def test_a_deleted_table_comes_back_from_an_export(populate: Any) -> None:
    async def story(candidate: Candidate) -> None:
        await populate(candidate)
        document = await export_from_kubernetes(candidate.client, NAMESPACE, "a")
        (table,) = candidate.objects(PARTITION_TABLE)
        await candidate.server.remove(candidate.path(PARTITION_TABLE), table)
        await candidate.touch(CLUSTER_STATE, "a")
        with pytest.raises(RefusedError):
            await candidate.decide("a")
        await candidate.until(lambda: "is missing" in candidate.reign("a").problem)
        assert candidate.objects(PARTITION_TABLE) == {}, "nobody makes an empty one"
        await import_into_kubernetes(candidate.client, NAMESPACE, "a", document)
        await candidate.reigning("a", after=EPOCH_JUMP)
        assert has_topic(candidate)

    play(story, "a")


def as_typed(candidate: Candidate, kubeconfig: Path) -> Callable[..., Awaitable[str]]:
    """Return what runs a verb of `kubectl fairlead metadata`, and gives what it says."""
    context = {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": NAMESPACE}}
    config = {
        "clusters": [{"name": "c", "cluster": {"server": candidate.server.url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [context],
        "current-context": "c",
    }
    kubeconfig.write_text(json.dumps(config))

    async def run(*arguments: str) -> str:
        command = ["metadata", *arguments, "--kubeconfig", str(kubeconfig)]
        result = await asyncio.to_thread(CliRunner().invoke, plugin, command)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            return f"{type(result.exception).__name__}: {result.exception}"
        return result.output

    return run


def test_the_verbs_of_kubectl(populate: Any, tmp_path: Path) -> None:
    """Export, backup, import and confirm, as a person types them."""

    async def story(candidate: Candidate) -> None:
        run = as_typed(candidate, tmp_path / "config")
        await populate(candidate)
        assert "has not one LogCluster but none" in await run("export", "-")
        await candidate.server.put(candidate.path(LOG_CLUSTER), "a")
        file = tmp_path / "metadata.json"
        assert await run("export", str(file)) == f"Exported 3 brokers, 1 topic to {file}.\n"
        said = await run("export", "-")
        assert json.loads(said) == json.loads(file.read_text())
        folder = tmp_path / "backups"
        folder.mkdir()
        for _ in range(3):
            await run("backup", str(folder), "--keep", "2")
        newest = sorted(folder.iterdir())
        assert len(newest) == 2
        assert json.loads(newest[-1].read_text()) == json.loads(file.read_text())

        assert "there is nothing to confirm" in await run("confirm")
        objects = backup(candidate)
        await candidate.decide("a")
        await put_back(candidate, objects)
        await find_out(candidate)
        said = await run("confirm", "--cluster", "a")
        assert "It had been found that table" in said
        assert "Confirmed: controller epoch" in said
        before = await candidate.reigning("a", after=EPOCH_JUMP)
        said = await run("import", str(newest[-1]))
        assert "Imported 3 brokers, 1 topic: controller epoch" in said
        with pytest.raises(RefusedError):
            await candidate.decide("a")
        await candidate.reigning("a", after=before + EPOCH_JUMP - 1)
        assert has_topic(candidate)
        file.write_text("{}")
        assert "this is no metadata document" in await run("import", str(file))
        missing = await run("export", "-", "--cluster", "b")
        assert "holds no metadata of a cluster b" in missing

    play(story, "a")


def test_the_verbs_of_kubectl_with_an_object_store(
    populate: Any, aws: ObjectStoreServer, tmp_path: Path
) -> None:
    """The same names and the same pruning as in a folder, and the way back."""
    bucket = aws.make_bucket()
    folder = f"s3://{bucket.name}/clusters"

    async def story(candidate: Candidate) -> None:
        run = as_typed(candidate, tmp_path / "config")
        await populate(candidate)
        await candidate.server.put(candidate.path(LOG_CLUSTER), "a")
        exported = await run("export", f"{folder}/now.json")
        assert exported == f"Exported 3 brokers, 1 topic to {folder}/now.json.\n"
        for _ in range(4):
            said = await run("backup", folder, "--keep", "3")
        saved, removed = said.splitlines()
        assert removed == "Removed 1 old export."
        *_, newest = exports = [key for key in bucket.list_keys() if "now" not in key]
        assert saved == f"Exported 3 brokers, 1 topic to s3://{bucket.name}/{newest}."
        assert len(exports) == 3
        assert json.loads(bucket.get(newest)) == json.loads(bucket.get("clusters/now.json"))

        objects = backup(candidate)
        await candidate.decide("a")
        await put_back(candidate, objects)
        await find_out(candidate)
        said = await run("import", f"s3://{bucket.name}/{newest}")
        assert "Imported 3 brokers, 1 topic: controller epoch" in said
        await candidate.reigning("a", after=EPOCH_JUMP)
        assert has_topic(candidate)
        assert "(NoSuchBucket)" in await run("backup", "s3://nobody-made-it")

    play(story, "a")
