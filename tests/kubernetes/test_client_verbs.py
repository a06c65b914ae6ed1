"""The client's verbs, credentials and watches, against the API server itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from fairlead_kube.client import JSON_PATCH, KubeClient
from fairlead_kube.credentials import load_credentials
from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import CONFIG_MAP, NODE, TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

pytestmark = pytest.mark.kubernetes


def config_map(name: str, *, label: str = "x", **data: str) -> dict[str, Any]:
    """A small object that has no controller."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"sort": label}},
        "data": data,
    }


def test_an_object_is_made_read_changed_and_deleted(
    kube: KubeClient, namespace: str, run: Run
) -> None:
    async def story() -> None:
        made = await kube.create(CONFIG_MAP, namespace, config_map("one", a="1"))
        assert await kube.get(CONFIG_MAP, namespace, "one") == made
        with pytest.raises(ApiError) as exists:
            await kube.create(CONFIG_MAP, namespace, config_map("one"))
        assert exists.value.is_conflict
        changed = await kube.replace(CONFIG_MAP, namespace, "one", made | {"data": {"a": "2"}})
        with pytest.raises(ApiError) as conflict:
            await kube.replace(CONFIG_MAP, namespace, "one", made | {"data": {"a": "3"}})
        assert (conflict.value.is_conflict, conflict.value.reason) == (True, "Conflict")
        shortly = await kube.replace(
            CONFIG_MAP, namespace, "one", changed | {"data": {"a": "4"}}, metadata_only=True
        )
        assert shortly["kind"] == "PartialObjectMetadata"
        assert shortly["metadata"]["resourceVersion"] != changed["metadata"]["resourceVersion"]
        merged = await kube.patch(CONFIG_MAP, namespace, "one", {"data": {"b": "5"}})
        assert merged["data"] == {"a": "4", "b": "5"}
        steps = [{"op": "remove", "path": "/data/a"}]
        patched = await kube.patch(CONFIG_MAP, namespace, "one", steps, content_type=JSON_PATCH)
        assert patched["data"] == {"b": "5"}
        with pytest.raises(ApiError) as later:
            body = {"metadata": {"uid": "another", "labels": {"a": "b"}}}
            await kube.patch(CONFIG_MAP, namespace, "one", body)
        assert later.value.is_conflict
        with pytest.raises(ApiError) as another:
            await kube.delete(CONFIG_MAP, namespace, "one", uid="another")
        assert another.value.is_conflict
        await kube.delete(CONFIG_MAP, namespace, "one", uid=made["metadata"]["uid"])
        with pytest.raises(ApiError) as absent:
            await kube.get(CONFIG_MAP, namespace, "one")
        assert absent.value.is_not_found

    run(story())


def test_a_status_is_that_of_one_object_and_of_no_later_one_of_its_name(
    kube: KubeClient, namespace: str, run: Run
) -> None:
    """The operator may be about to write it when the object is deleted and made anew."""

    async def story() -> None:
        manifest = {
            "apiVersion": TOPIC.api_version,
            "kind": TOPIC.kind,
            "metadata": {"name": "orders"},
            "spec": {"clusterName": "demo"},
        }
        first = await kube.create(TOPIC, namespace, manifest)
        uid = first["metadata"]["uid"]
        status = {"topicName": "orders", "partitions": 3, "offline": None}
        written = await kube.write_status(TOPIC, namespace, "orders", status, uid=uid)
        assert written["status"] == {"topicName": "orders", "partitions": 3}
        written = await kube.write_status(TOPIC, namespace, "orders", {"partitions": 4}, uid=uid)
        assert written["status"] == {"partitions": 4}, "what it does not say is gone"
        with pytest.raises(ApiError) as wrong:
            await kube.write_status(TOPIC, namespace, "orders", {"partitions": "x"}, uid=uid)
        assert (wrong.value.status, wrong.value.is_conflict) == (422, False)
        await kube.delete(TOPIC, namespace, "orders")
        await kube.create(TOPIC, namespace, manifest)
        with pytest.raises(ApiError) as another:
            await kube.write_status(TOPIC, namespace, "orders", status, uid=uid)
        assert another.value.is_conflict
        assert "status" not in await kube.get(TOPIC, namespace, "orders")

    run(story())


def test_applying_takes_away_what_is_no_longer_said(
    kube: KubeClient, namespace: str, run: Run
) -> None:
    async def story() -> None:
        await kube.apply(CONFIG_MAP, namespace, "one", config_map("one", a="1", b="2"))
        await kube.patch(CONFIG_MAP, namespace, "one", {"data": {"of-others": "3"}})
        applied = await kube.apply(CONFIG_MAP, namespace, "one", config_map("one", a="4"))
        assert applied["data"] == {"a": "4", "of-others": "3"}
        again = await kube.apply(CONFIG_MAP, namespace, "one", config_map("one", a="4"))
        assert again["metadata"]["resourceVersion"] == applied["metadata"]["resourceVersion"]
        with pytest.raises(ApiError) as conflict:
            await kube.apply(
                CONFIG_MAP,
                namespace,
                "one",
                config_map("one", a="5"),
                field_manager="somebody-else",
                force=False,
            )
        assert conflict.value.is_conflict

    run(story())


def test_collections_are_listed_by_label_in_pages(
    kube: KubeClient, namespace: str, run: Run
) -> None:
    async def story() -> None:
        for number in range(7):
            label = "even" if number % 2 == 0 else "odd"
            await kube.create(CONFIG_MAP, namespace, config_map(f"m{number}", label=label))
        even = await kube.list(CONFIG_MAP, namespace, label_selector="sort=even", limit=2)
        assert [item["metadata"]["name"] for item in even.items] == ["m0", "m2", "m4", "m6"]
        assert even.items[0]["kind"] == "ConfigMap"
        assert (await kube.list(NODE)).items
        everywhere = await kube.list(CONFIG_MAP, label_selector="sort=odd")
        assert {item["metadata"]["namespace"] for item in everywhere.items} >= {namespace}
        await kube.check(TOPIC)

    run(story())


def test_a_watch_tells_changes_and_ends_with_a_bookmark(
    kube: KubeClient, namespace: str, run: Run
) -> None:
    async def story() -> None:
        start = await kube.list(CONFIG_MAP, namespace, label_selector="sort=x")
        await kube.create(CONFIG_MAP, namespace, config_map("one"))
        await kube.create(CONFIG_MAP, namespace, config_map("other", label="y"))
        await kube.patch(CONFIG_MAP, namespace, "one", {"data": {"a": "1"}})
        await kube.delete(CONFIG_MAP, namespace, "one")
        events = [
            (event.type, event.object["metadata"].get("name", ""))
            async for event in kube.watch(
                CONFIG_MAP,
                namespace,
                resource_version=start.resource_version,
                label_selector="sort=x",
                timeout_s=10,
            )
        ]
        assert events[:3] == [("ADDED", "one"), ("MODIFIED", "one"), ("DELETED", "one")]
        assert {sort for sort, _ in events[3:]} == {"BOOKMARK"}

    run(story())


def test_a_watch_from_a_forgotten_version_is_gone(
    kube: KubeClient, namespace: str, run: Run
) -> None:
    async def story() -> None:
        with pytest.raises(ApiError) as gone:
            async for _ in kube.watch(CONFIG_MAP, namespace, resource_version="1", timeout_s=5):
                raise AssertionError("nothing of this version is known")
        assert gone.value.is_gone

    run(story())


def test_a_pod_speaks_with_its_token_over_tls(
    kube: KubeClient, namespace: str, run: Run, tmp_path: Path
) -> None:
    async def story() -> None:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
        request = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {}}
        async with asyncio.timeout(60):
            while True:
                try:
                    root = await kube.get(CONFIG_MAP, namespace, "kube-root-ca.crt")
                    answer = await kube._transport.request("create", "POST", path, body=request)
                    break
                except ApiError as error:
                    assert error.is_not_found  # Both are made soon after the namespace.
                    await asyncio.sleep(0.1)
        (tmp_path / "ca.crt").write_text(root["data"]["ca.crt"])
        (tmp_path / "namespace").write_text(namespace)
        (tmp_path / "token").write_text(answer["status"]["token"])
        host, _, port = kube.credentials.server.removeprefix("https://").partition(":")
        environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port or "443"}
        credentials = load_credentials(environment, service_account_folder=tmp_path)
        pod = KubeClient(credentials, request_timeout_s=10.0, connect_timeout_s=5.0)
        try:
            with pytest.raises(ApiError) as forbidden:
                await pod.list(CONFIG_MAP, credentials.namespace)
            assert (forbidden.value.status, forbidden.value.reason) == (403, "Forbidden")
            assert f"system:serviceaccount:{namespace}:default" in forbidden.value.message
            (tmp_path / "token").write_text("worthless")
            with pytest.raises(ApiError) as unknown:
                await pod.list(CONFIG_MAP, credentials.namespace)
            assert unknown.value.status == 401
        finally:
            await pod.close()

    run(story())
