"""Carries out plans for batches of Users, separately for each cluster.

For each User: its finalizer, its Secret, then the call, then its status. Credentials of passwords
are computed in threads, and only if the controller does not have them.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Protocol

from fairlead_kube.client import KubeClient
from fairlead_kube.errors import ApiError, ApiUnavailableError
from fairlead_kube.kinds import USER
from fairlead_model.resources.user_declaration import UserDeclaration, encode_declaration
from fairlead_model.security.acl import AclBinding
from fairlead_model.security.scram import DEFAULT_ITERATIONS, ScramMechanism, derive
from fairlead_operator.controller_client import ControllerRefusedError, ControllerUnavailableError
from fairlead_operator.cut_fields import CutFields
from fairlead_operator.events import EventWriter
from fairlead_operator.specs.client_access import find_user_access
from fairlead_operator.topics.cluster_passes import ClusterPasses
from fairlead_operator.topics.topic_resource import FINALIZER, ClusterKey, ResourceKey
from fairlead_operator.topics.topic_status import Verdict, build_status_patch
from fairlead_operator.topics.work_queue import UNEXPECTED_DELAY_S, WorkQueue
from fairlead_operator.users.plan import Plan, plan_user
from fairlead_operator.users.user_policy import refusal, split_rules
from fairlead_operator.users.user_resource import UserResource
from fairlead_operator.users.user_scope import UserScope
from fairlead_operator.users.user_secret import revision_of, salt_of
from fairlead_operator.users.user_secrets import (
    SOURCE_LOOK_S,
    UserSecret,
    UserSecretError,
    UserSecrets,
)
from fairlead_operator.users.user_status import (
    UserSight,
    build_user_status,
    judge,
    turned_bad,
)

logger = logging.getLogger(__name__)

WORKERS: Final = 16
"""Users that are written to the API server at a time."""
DEFAULTS_LOOK_S: Final = 60.0
"""How soon a User with lowered quotas is checked again: the defaults may have changed."""
MECHANISM: Final = ScramMechanism.SCRAM_SHA_512
_SILENT: Final[Verdict] = (
    False,
    "ControllerUnavailable",
    "the controller has not answered yet: it may be taking over the cluster, or wait for its store",
)


class UserController(Protocol):
    """The method of the controller's client that is needed here."""

    async def apply_users(
        self, namespace: str, cluster: str, request: dict[str, Any]
    ) -> dict[str, Any]:
        """Apply User resources."""
        ...


@dataclass(slots=True)
class _Work:
    """One User in a batch: what was found, and what the controller is told."""

    resource: UserResource
    manifest: dict[str, Any]
    plan: Plan
    sight: UserSight
    rules: frozenset[AclBinding] = frozenset()
    exceeds_defaults: bool = False
    """Whether its quotas may be above the cluster's defaults."""
    secret: UserSecret | None = None
    result: Mapping[str, Any] | None = None

    def declaration(self) -> UserDeclaration:
        """Return its declaration, without the credential."""
        revision: str | None = ""
        if self.resource.login == "scram-sha-512":
            revision = None if self.secret is None else revision_of(self.secret.manifest)
        return UserDeclaration(
            self.resource.name,
            self.resource.principal,
            self.rules,
            revision,
            quotas=self.resource.quotas,
            exceeds_defaults=self.exceeds_defaults,
        )


@dataclass(slots=True)
class _Call:
    """One request to the controller that is being built."""

    apply: list[_Work] = field(default_factory=list)
    forget: list[_Work] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    """Resources that the API server no longer has, either."""


class UserReconciler:
    """Takes keys from `queue`."""

    def __init__(
        self,
        client: KubeClient,
        controller: UserController,
        scope: UserScope,
        queue: WorkQueue[ResourceKey],
        *,
        secrets: UserSecrets,
        events: EventWriter,
        wall_clock: Callable[[], datetime],
    ) -> None:
        self.statuses_written = 0
        """For metrics."""
        self._client = client
        self._controller = controller
        self._scope = scope
        self._queue = queue
        self._secrets = secrets
        self._events = events
        self._wall_clock = wall_clock
        self._writers = asyncio.Semaphore(WORKERS)
        self._cut = CutFields()

    def forget(self, key: ResourceKey) -> None:
        """Forget a User that was deleted."""
        self._cut.forget(key)

    async def run(self) -> None:
        """Work until cancelled; a ControllerStandbyError, inside exception groups, ends it."""
        passes = ClusterPasses(
            self._queue,
            cluster_of=self._cluster_of,
            to_forget=lambda: [each for each in self._scope.gone if each in self._scope.epochs],
            reconcile=self._reconcile,
        )
        await passes.run()

    def _cluster_of(self, key: ResourceKey) -> ClusterKey | None:
        resource = self._scope.resources.get(key)
        return None if resource is None else resource.cluster_key

    async def _reconcile(self, cluster: ClusterKey, keys: Iterable[ResourceKey]) -> None:
        resources = [self._scope.resources[key] for key in keys]
        found = [resource for resource in resources if self._scope.may_act(resource)]
        prepared = await asyncio.gather(*(self._guarded(self._prepare, each) for each in found))
        works = [work for work in prepared if work is not None]
        call = _Call()
        if cluster in self._scope.epochs:
            call.gone = sorted(self._scope.gone.get(cluster, ()))
        for work in works:
            if work.plan.is_applied:
                call.apply.append(work)
            elif work.plan.is_forgotten:
                call.forget.append(work)
        await self._call(cluster, call)
        await asyncio.gather(*(self._guarded(self._finish, work) for work in works))

    async def _guarded(self, step: Any, subject: Any) -> Any:
        """Take a step for one User; try again later if it fails."""
        resource = subject if isinstance(subject, UserResource) else subject.resource
        try:
            async with self._writers:
                return await step(subject)
        except (ApiError, ApiUnavailableError) as error:
            if isinstance(error, ApiError) and error.is_not_found:
                return None
            if not (isinstance(error, ApiError) and error.is_conflict):
                logger.warning("User %s/%s: %s", *resource.key, error)
            self._queue.retry(resource.key)
            return None
        except Exception:
            # The error concerns only this User: the others go on.
            logger.exception("User %s/%s: trying again after an unexpected error", *resource.key)
            self._queue.add(resource.key, UNEXPECTED_DELAY_S)
            return None

    async def _prepare(self, resource: UserResource) -> _Work | None:
        """Do what comes before the call; None if nothing more has to be done."""
        scope = self._scope
        manifest = scope.manifests[resource.key]
        limits = scope.limits(resource)
        sight = UserSight(
            cluster=scope.presence(resource.cluster_key),
            owner=scope.owner(resource),
            refusal=refusal(resource, limits),
        )
        plan = plan_user(
            resource,
            cluster=sight.cluster,
            owner=sight.owner,
            refusal=sight.refusal,
            only_cluster=scope.only_cluster(resource.namespace),
        )
        work = _Work(resource, manifest, plan, sight)
        if plan.names_cluster:
            patch = {"spec": {"clusterName": scope.only_cluster(resource.namespace)}}
            await self._client.patch(USER, *resource.key, patch)
            return None
        if plan.adds_finalizer:
            await self._set_finalizer(work, is_wanted=True)
        if plan.is_applied:
            work.rules, left_out = split_rules(resource, limits)
            work.exceeds_defaults = limits.exceed_defaults
            work.sight = replace(sight, left_out=left_out)
            await self._ensure_secret(work)
        return work

    async def _ensure_secret(self, work: _Work) -> None:
        resource = work.resource
        access = find_user_access(self._scope.clusters[resource.cluster_key], resource.login)
        work.sight = replace(work.sight, has_listener=access.takes_login)
        try:
            work.secret = await self._secrets.ensure(resource, work.manifest, access)
        except UserSecretError as problem:
            # The controller gets its rules nevertheless: some may have been revoked.
            work.sight = replace(work.sight, secret_problem=(problem.reason, problem.message))
            self._queue.retry(resource.key, backoff_s_max=SOURCE_LOOK_S)

    async def _forget_before(self, cluster: ClusterKey, call: _Call) -> None:
        """Have the controller forget deleted resources whose names already have successors.

        A reply has one result per name. The successor's result would hide that the old resource is
        forgotten; forgetting would be repeated, and would revoke the successor's rights. So the
        successor waits.
        """
        anew = sorted({*call.gone} & {work.resource.name for work in call.apply})
        if not anew:
            return
        results = await self._ask(cluster, [], anew) or {}
        settled = _settled(anew, results)
        self._scope.gone_told(cluster, settled)
        waiting = {*anew} - {*settled}
        for work in call.apply:
            if work.resource.name in waiting:
                work.result = results.get(work.resource.name)
        call.apply = [work for work in call.apply if work.resource.name not in waiting]
        call.gone = [name for name in call.gone if name not in anew]

    async def _call(self, cluster: ClusterKey, call: _Call) -> None:
        await self._forget_before(cluster, call)
        forget = sorted({*call.gone, *(work.resource.name for work in call.forget)})
        declarations = [work.declaration() for work in call.apply]
        if not forget and not declarations:
            return
        results = await self._ask(cluster, declarations, forget)
        settled = _settled(call.gone, results or {})
        self._scope.gone_told(cluster, settled)
        for name in {*call.gone} - {*settled}:
            self._queue.retry((cluster[0], name))
        if results is None:
            return
        for work in (*call.apply, *call.forget):
            work.result = results.get(work.resource.name)
        needing = [
            work for work in call.apply if (work.result or {}).get("reason") == "CredentialNeeded"
        ]
        if needing:
            given = await asyncio.gather(*(asyncio.to_thread(_with_credential, w) for w in needing))
            results = await self._ask(cluster, given, []) or {}
            for work in needing:
                work.result = results.get(work.resource.name)

    async def _ask(
        self, cluster: ClusterKey, apply: Iterable[UserDeclaration], forget: list[str]
    ) -> Mapping[str, Any] | None:
        body = {"apply": [encode_declaration(each) for each in apply], "forget": forget}
        try:
            return await self._controller.apply_users(*cluster, body)
        except (ControllerUnavailableError, ControllerRefusedError) as error:
            logger.info("Users of %s/%s: %s; asking again", *cluster, error)
            return None

    async def _finish(self, work: _Work) -> None:
        """Do what comes after the call: the finalizer of a forgotten User, the status."""
        resource, plan = work.resource, work.plan
        is_told = not (plan.is_applied or plan.is_forgotten) or work.result is not None
        is_settled = is_told and (work.result or {}).get("state", "ok") == "ok"
        if plan.drops_finalizer and is_settled:
            await self._set_finalizer(work, is_wanted=False)
        if not is_settled:
            self._queue.retry(resource.key)
        elif work.sight.secret_problem is None:
            self._queue.succeeded(resource.key)
            if work.secret is not None and work.secret.look_after_s is not None:
                self._queue.add(resource.key, work.secret.look_after_s)
            if (work.result or {}).get("lowered"):
                self._queue.add(resource.key, DEFAULTS_LOOK_S)
        if resource.is_managed and not resource.is_deleting:
            verdict = judge(resource, replace(work.sight, result=work.result))
            if verdict is None and not work.manifest.get("status"):
                verdict = _SILENT
            if verdict is not None:
                await self._write_status(work, verdict)

    async def _write_status(self, work: _Work, verdict: Verdict) -> None:
        before = work.manifest.get("status") or {}
        rules = len(work.rules) if work.plan.is_applied else None
        after = build_user_status(
            work.resource,
            before,
            verdict,
            rules=rules,
            has_secret=work.secret is not None,
            now=self._wall_clock(),
        )
        key, uid = work.resource.key, work.resource.uid
        fields = self._cut.without_cut(key, uid, build_status_patch(before, after), before)
        if not fields:
            return
        answer = await self._client.write_status(USER, *key, after, uid=uid)
        self.statuses_written += 1
        if key in self._scope.manifests:
            self._cut.note(key, uid, fields, answer.get("status") or {})
        if turned_bad(before, verdict):
            await self._events.emit(work.manifest, verdict[1], verdict[2], "Warning")

    async def _set_finalizer(self, work: _Work, *, is_wanted: bool) -> None:
        """Add or remove our finalizer on the version that was read."""
        metadata = work.manifest["metadata"]
        others = [each for each in metadata.get("finalizers") or () if each != FINALIZER]
        patch = {
            "metadata": {
                "finalizers": [*others, FINALIZER] if is_wanted else others or None,
                "resourceVersion": metadata["resourceVersion"],
            }
        }
        await self._client.patch(USER, *work.resource.key, patch)


def _settled(names: Iterable[str], results: Mapping[str, Any]) -> list[str]:
    return [name for name in names if (results.get(name) or {}).get("state") == "ok"]


def _with_credential(work: _Work) -> UserDeclaration:
    """Return a User's declaration with the credential of its password; it takes milliseconds."""
    if work.secret is None:
        raise ValueError("a credential is asked for only where there is a password")
    secret = work.secret
    credential = derive(
        MECHANISM, secret.material.password, DEFAULT_ITERATIONS, salt_of(secret.manifest)
    )
    return replace(work.declaration(), credential=credential)
