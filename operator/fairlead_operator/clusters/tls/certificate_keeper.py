"""Keeps the authority and the certificates of each cluster: makes, renews and rotates them.

`fairlead_operator/certificates` decides what to do. Each step is one write of a Secret, and its
consequences follow in the same pass or the next: first an authority, then what is trusted, then
what brokers show. Brokers read new files while they serve.

While the spec of a LogCluster is not accepted, the brokers' present certificates are renewed
unchanged (`renew`).
"""

import hashlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import CERTIFICATE, POD, SECRET
from fairlead_operator.certificates.authority import (
    KeyPair,
    is_due,
    is_issued_by,
    issue,
    make_authority,
    reissue,
)
from fairlead_operator.certificates.keystores import (
    build_keystore,
    keystore_problem,
    may_stay,
    missing_names,
)
from fairlead_operator.certificates.rotation import (
    Authorities,
    AuthorityError,
    RotationSight,
    Step,
    announce,
    decide_step,
    drop,
    promote,
    read_authorities,
)
from fairlead_operator.clusters.api_writer import ApiWriter
from fairlead_operator.clusters.plan import ClusterPlan, LiveKey, PoolPlan, WantedObject
from fairlead_operator.clusters.tls.authority_keeper import LEFTOVER, AuthorityKeeper
from fairlead_operator.clusters.tls.broker_trust import (
    BrokerTrust,
    is_issued_everywhere,
    is_trusted,
    own_listeners,
)
from fairlead_operator.live_objects import ClusterKey, Manifest
from fairlead_operator.refusals import Refusals
from fairlead_operator.resources import Listener
from fairlead_operator.specs.apply_decision import is_covered, needs_apply, with_hash
from fairlead_operator.specs.certificates import (
    CERTIFICATES_ANNOTATION,
    TLS_CERTIFICATE,
    TLS_KEY,
    bootstrap_of,
    build_authority_secret,
    build_certificate,
    build_controller_secret,
    build_tls_secret,
    build_trust_secret,
    decode_secret,
    inside_hosts,
    outside_hosts,
    read_issued,
    rebuild_secret,
)
from fairlead_operator.specs.listener_security import keystore_key, tls_listeners
from fairlead_operator.specs.names import (
    CLUSTER_LABEL,
    ISSUED_ANNOTATION,
    OPERATOR_LISTENER,
    POOL_LABEL,
    ROTATE_ANNOTATION,
    TRUST_KEY,
    authority_secret_name,
    controller_tls_secret_name,
    issued_secret_name,
    stateful_set_name,
    tls_secret_name,
    trust_secret_name,
)
from fairlead_operator.specs.peer_security import PEERS_MAX, peer_key, peer_uri
from fairlead_operator.specs.secret_data import read_data
from fairlead_operator.specs.session_secret import is_leftover
from fairlead_operator.specs.views import ClusterView, PoolView

LEAF_LIFE: Final = timedelta(days=90)
BROKERS: Final = "fairlead brokers"
"""Name in certificates of brokers; no user can have it, because of the blank in it."""
LOOK_S: Final = 10.0
"""How often other owners' Secrets are read, because they are not watched."""
NOT_OURS: Final = (
    "the Secret {} was not made by the operator: delete it, because brokers need a Secret of this "
    "name"
)
NAMED_CONTROLLER: Final = (
    "the Secret {} is for the certificate of the controller: create the pool under another name"
)
TOO_MANY: Final = (
    "the pool {} has more than {} brokers, whose certificates do not fit in one Secret: create "
    "another pool for the others"
)
NO_CERT_MANAGER: Final = (
    "the listener {} names an issuer, and the API server knows no Certificates: install "
    "cert-manager, or leave issuerRef out"
)


@dataclass(slots=True)
class CertificateReport:
    """The state of a cluster's certificates."""

    problems: list[str] = field(default_factory=list)
    blocked: dict[str, str] = field(default_factory=dict)
    """By pool: why its brokers cannot get what they need to start."""
    rotation: str = ""
    """The step of a rotation of the authority; empty if there is none."""
    news: tuple[str, str] | None = None
    """What became of an authority whose Secret was deleted: reason and message of an Event."""

    def block(self, pool: str, problem: str) -> None:
        """Make the brokers of a pool wait."""
        self.blocked[pool] = problem
        self.problems.append(problem)

    def block_all(self, plan: ClusterPlan, problem: str) -> None:
        """Make the brokers of all pools wait for a problem that is already reported."""
        self.blocked.update({each.pool.name: problem for each in plan.pools})


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateSight:
    """What a pass knows of a cluster."""

    cluster: ClusterView
    plan: ClusterPlan
    live: Mapping[LiveKey, Mapping[str, Any]]
    pods: Sequence[Manifest]
    report: CertificateReport = field(default_factory=CertificateReport)

    def secret(self, name: str) -> Mapping[str, Any] | None:
        """Return a live Secret with certificates."""
        return self.live.get((SECRET.kind, name))

    @property
    def nodes(self) -> list[str]:
        """Addresses of the nodes with brokers."""
        return sorted({host for pod in self.pods if (host := _host_of(pod))})

    @property
    def brokers(self) -> int:
        """How many brokers are declared."""
        return sum(each.pool.spec.replicas for each in self.plan.pools)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSight:
    """What is known of a cluster whose spec is not accepted."""

    log_cluster: Manifest
    secrets: Sequence[Manifest]
    """The Secrets with certificates."""
    pods: Sequence[Manifest]
    cluster: ClusterView | None
    """The spec, if it can be read."""


class CertificateKeeper:
    """The certificates of all clusters; only this part of the operator makes keys."""

    def __init__(
        self,
        writer: ApiWriter,
        trust: BrokerTrust,
        *,
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer = writer
        self._trust = trust
        self._wall_clock = wall_clock
        self._monotonic = monotonic
        self._given: dict[tuple[str, str], tuple[float, Manifest | None]] = {}
        """Other owners' Secrets, by namespace and name: when each was read, and its content."""
        self._asked: dict[tuple[str, str], tuple[float, Manifest]] = {}
        """Certificates, by namespace and name: when each was compared, and with what."""
        self._authorities = AuthorityKeeper(writer, wall_clock=wall_clock)

    def forget(self, key: ClusterKey) -> None:
        """Forget a LogCluster that was deleted."""
        self._authorities.forget(key)

    async def look_after(self, sight: CertificateSight, refusals: Refusals) -> CertificateReport:
        """Take the next steps for a cluster."""
        cluster, report = sight.cluster, sight.report
        if not cluster.spec.has_certificates:
            for plan in sight.plan.pools:
                await self._withdraw_all(sight, plan.pool, refusals)
            return report
        authorities, name = None, authority_secret_name(cluster.name)
        with refusals.noting(SECRET.kind, name):
            authorities = await self._ensure_authority(sight)
            if authorities is not None:
                authorities = await self._rotate(sight, authorities)
                await self._apply(build_trust_secret(cluster, authorities), sight)
        if authorities is None:
            blocked = "; ".join(report.problems) or "the authority cannot be made yet"
            report.block_all(sight.plan, blocked)
            return report
        if cluster.spec.inter_broker.tls:
            with refusals.noting(SECRET.kind, controller_tls_secret_name(cluster.name)):
                await self._look_after_controller(sight, authorities)
        for plan in sight.plan.pools:
            with refusals.noting(SECRET.kind, tls_secret_name(cluster.name, plan.pool.name)):
                await self._look_after_pool(sight, plan, authorities, refusals)
        return report

    async def renew(self, sight: HeldSight, refusals: Refusals) -> None:
        """Renew the brokers' certificates for the names that they have; replace no authority.

        Certificates of other issuers are adopted if the spec can be read and names them.
        """
        if not sight.secrets:
            return
        cluster = sight.log_cluster["metadata"]["name"]
        authorities, name = None, authority_secret_name(cluster)
        with refusals.noting(SECRET.kind, name):
            authorities = await self._find_authority(sight, name)
        if authorities is None:
            return
        for secret in sight.secrets:
            if _is_for_brokers(secret, cluster):
                with refusals.noting(SECRET.kind, secret["metadata"]["name"]):
                    await self._renew_secret(sight, secret, authorities)

    async def _find_authority(self, sight: HeldSight, name: str) -> Authorities | None:
        metadata = sight.log_cluster["metadata"]
        known = (each for each in sight.secrets if each["metadata"]["name"] == name)
        secret = next(known, None) or await self._writer.find(
            SECRET, {"metadata": {"namespace": metadata["namespace"], "name": name}}
        )
        if secret is None or is_leftover(secret, metadata["uid"]):
            return None
        try:
            return read_authorities(secret.get("data") or {})
        except AuthorityError:
            return None

    async def _renew_secret(
        self, sight: HeldSight, secret: Manifest, authorities: Authorities
    ) -> None:
        """Replace the certificates of a Secret that are due, and nothing else."""
        metadata, before = secret["metadata"], read_data(secret)
        labels, after, now = metadata.get("labels") or {}, dict(before), self._wall_clock()
        for key in before:
            if key.endswith(keystore_key("")):
                present = KeyPair(before[key], before[key])
                pair = _renewed(present, authorities, now)
                after[key] = before[key] if pair is present else build_keystore(pair)
        if TLS_CERTIFICATE in before and TLS_KEY in before:
            pair = _renewed(KeyPair(before[TLS_CERTIFICATE], before[TLS_KEY]), authorities, now)
            after |= {TLS_CERTIFICATE: pair.certificate, TLS_KEY: pair.key}
        for key, name in _given_secrets(sight.cluster, labels.get(POOL_LABEL, "")).items():
            if key in before and not _is_own(before[key], authorities):
                given = await self._read_given(metadata["namespace"], name)
                pair = KeyPair(decode_secret(given, TLS_CERTIFICATE), decode_secret(given, TLS_KEY))
                if not keystore_problem(pair, now):
                    after[key] = build_keystore(pair)
        if TRUST_KEY in before:
            after[TRUST_KEY] = authorities.trusted
        if after == before:
            return
        manifest = rebuild_secret(secret, after)
        child = WantedObject(SECRET, with_hash(manifest))
        await self._writer.apply(child)
        if POOL_LABEL in labels:
            stateful_set = stateful_set_name(labels[CLUSTER_LABEL], labels[POOL_LABEL])
            await self._renew_mounts(stateful_set, manifest, sight.pods)

    async def _ensure_authority(self, sight: CertificateSight) -> Authorities | None:
        """Return the cluster's authority, made if missing; if None, the report says why."""
        name = sight.cluster.name
        is_trusted = sight.secret(trust_secret_name(name)) is not None
        secret = sight.secret(authority_secret_name(name))
        found = await self._authorities.ensure(sight.cluster, secret, is_trusted=is_trusted)
        if found.problem:
            sight.report.problems.append(found.problem)
        sight.report.news = found.news
        return found.authorities

    async def _rotate(self, sight: CertificateSight, authorities: Authorities) -> Authorities:
        """Take the next step of a rotation, if there is one."""
        cluster, report, now = sight.cluster, sight.report, self._wall_clock()
        secret = sight.secret(authority_secret_name(cluster.name)) or {}
        annotations = (secret.get("metadata") or {}).get("annotations") or {}
        rotated = annotations.get(ROTATE_ANNOTATION, "")
        is_going_on = authorities.next is not None or bool(authorities.former)
        listeners = own_listeners(cluster)
        told = await self._trust.ask(sight.pods, listeners) if is_going_on else []
        secrets = [each for (kind, _), each in sight.live.items() if kind == SECRET.kind]
        step = decide_step(
            authorities,
            RotationSight(
                is_asked_for=bool(secret) and cluster.rotate_authority not in ("", rotated),
                is_trusted=is_trusted(told, sight.brokers, authorities.trusted),
                is_issued=is_issued_everywhere(
                    told, sight.brokers, secrets, authorities.current.certificate
                ),
                overlap=timedelta(days=cluster.spec.authority_overlap_days),
            ),
            now,
        )
        match step:
            case Step.NONE:
                if authorities.next is not None:
                    report.rotation = "a new authority is trusted beside the old one"
                elif authorities.former:
                    report.rotation = (
                        "the new authority issues certificates, and the old one is still trusted"
                    )
                return authorities
            case Step.ANNOUNCE:
                title = f"{cluster.name} {now:%Y-%m-%dT%H:%M:%SZ}"
                after = announce(authorities, make_authority(title, now))
                rotated = cluster.rotate_authority
                report.rotation = "a new authority is made, and trusted beside the old one"
            case Step.PROMOTE:
                after = promote(authorities, now)
                report.rotation = "the new authority issues all certificates from now on"
            case Step.DROP:
                after = drop(authorities)
                report.rotation = "the old authority is not trusted any more"
        await self._apply(build_authority_secret(cluster, after, rotated=rotated), sight)
        self._authorities.note(cluster, after, rotated=rotated)
        return after

    async def _look_after_controller(
        self, sight: CertificateSight, authorities: Authorities
    ) -> None:
        """Renew what the controller shows to brokers, which check it when they connect."""
        cluster, report = sight.cluster, sight.report
        name = controller_tls_secret_name(cluster.name)
        secret = sight.secret(name)
        if secret is None:
            empty = build_controller_secret(cluster, b"", KeyPair(b"", b""))
            secret = await self._writer.find(SECRET, empty)
        if secret is not None and not _is_ours(secret, cluster):
            problem = LEFTOVER if is_leftover(secret, cluster.uid) else NOT_OURS
            report.problems.append(problem.format(name))
            report.block_all(sight.plan, report.problems[-1])
            return
        present = KeyPair(decode_secret(secret, TLS_CERTIFICATE), decode_secret(secret, TLS_KEY))
        pair = self._own_pair(authorities, present, uri=peer_uri(cluster, None))
        await self._apply(build_controller_secret(cluster, authorities.trusted, pair), sight)

    async def _look_after_pool(
        self,
        sight: CertificateSight,
        plan: PoolPlan,
        authorities: Authorities,
        refusals: Refusals,
    ) -> None:
        cluster, pool, report = sight.cluster, plan.pool, sight.report
        name = tls_secret_name(cluster.name, pool.name)
        if name == controller_tls_secret_name(cluster.name):
            report.block(pool.name, NAMED_CONTROLLER.format(name))
            return
        if cluster.spec.inter_broker.tls and plan.certified > PEERS_MAX:
            report.block(pool.name, TOO_MANY.format(pool.name, PEERS_MAX))
            return
        secret = sight.secret(name)
        if secret is None:
            found = await self._writer.find(SECRET, build_tls_secret(cluster, pool, b"", {}))
            if found is not None and not _is_ours(found, pool):
                report.block(pool.name, NOT_OURS.format(name))
                return
        keystores = self._own_keystores(sight, plan, secret, authorities)
        for listener in tls_listeners(cluster):
            hosts = _hosts(sight, plan, listener)
            key = keystore_key(listener.name)
            if not _is_given(listener):
                keystores[key] = self._own_keystore(authorities, secret, key, hosts=hosts)
                continue
            given = await self._given_keystore(sight, pool, listener, hosts)
            kept = given or decode_secret(secret, key)
            if kept:
                keystores[key] = kept
            else:
                report.blocked[pool.name] = report.problems[-1]
        issued = {
            issued_secret_name(cluster.name, pool.name, listener.name)
            for listener in tls_listeners(cluster)
            if listener.tls is not None and listener.tls.issuer_ref is not None
        }
        issued |= await self._withdraw(pool, read_issued(secret) - issued, refusals)
        trusted = authorities.trusted
        manifest = build_tls_secret(cluster, pool, trusted, keystores, issued=issued)
        await self._apply(manifest, sight)
        await self._renew_mounts(pool.stateful_set, manifest, sight.pods)

    def _own_keystores(
        self,
        sight: CertificateSight,
        plan: PoolPlan,
        secret: Mapping[str, Any] | None,
        authorities: Authorities,
    ) -> dict[str, bytes]:
        """Return what brokers show to the operator, and to each other."""
        cluster, keystores = sight.cluster, dict[str, bytes]()
        if cluster.spec.is_secured:
            key, hosts = keystore_key(OPERATOR_LISTENER.lower()), inside_hosts(cluster)
            keystores[key] = self._own_keystore(authorities, secret, key, hosts=hosts)
        if cluster.spec.inter_broker.tls:
            for broker_id in plan.pool.broker_ids(plan.certified):
                key, uri = peer_key(broker_id), peer_uri(cluster, broker_id)
                keystores[key] = self._own_keystore(authorities, secret, key, uri=uri)
        return keystores

    def _own_keystore(
        self,
        authorities: Authorities,
        secret: Mapping[str, Any] | None,
        key: str,
        *,
        hosts: frozenset[str] = frozenset(),
        uri: str = "",
    ) -> bytes:
        """Return a certificate of the cluster's authority: the present one, or a new one."""
        present = decode_secret(secret, key)
        pair = self._own_pair(authorities, KeyPair(present, present), hosts=hosts, uri=uri)
        return present if pair.key is present else build_keystore(pair)

    def _own_pair(
        self,
        authorities: Authorities,
        present: KeyPair,
        *,
        hosts: frozenset[str] = frozenset(),
        uri: str = "",
    ) -> KeyPair:
        """Return the present pair or its replacement: for these hosts, with this identity."""
        now, authority = self._wall_clock(), authorities.current
        if may_stay(present, hosts, now, authority=authority.certificate, uri=uri):
            return present
        uris = [uri] if uri else []
        return issue(authority, BROKERS, now, hosts=sorted(hosts), uris=uris, life=LEAF_LIFE)

    async def _given_keystore(
        self,
        sight: CertificateSight,
        pool: PoolView,
        listener: Listener,
        hosts: frozenset[str],
    ) -> bytes:
        """Return another issuer's certificate; empty if unusable, and the report has the reason.

        The brokers then keep what they have.
        """
        cluster, report, tls = sight.cluster, sight.report, listener.tls
        if tls is None:
            return b""
        wanted = build_certificate(cluster, pool, listener, hosts)
        if tls.certificate is not None:
            name = tls.certificate.secret_name
        elif wanted is not None:
            name = wanted["spec"]["secretName"]
            if not await self._ensure_issued(wanted):
                report.problems.append(NO_CERT_MANAGER.format(listener.name))
                return b""
        else:
            return b""
        secret = await self._read_given(cluster.namespace, name)
        if secret is None:
            report.problems.append(f"listener {listener.name}: there is no Secret {name} yet")
            return b""
        pair = KeyPair(decode_secret(secret, TLS_CERTIFICATE), decode_secret(secret, TLS_KEY))
        problem = keystore_problem(pair, self._wall_clock())
        if problem:
            report.problems.append(f"listener {listener.name}, Secret {name}: {problem}")
            return b""
        absent = missing_names(pair.certificate, hosts)
        if absent and tls.certificate is not None:
            shown = ", ".join(absent[:3]) + (" …" if len(absent) > 3 else "")
            report.problems.append(
                f"listener {listener.name}, Secret {name}: clients that begin at one of these "
                f"{len(absent)} names refuse the certificate, which lacks them: {shown}"
            )
        return build_keystore(pair)

    async def _read_given(self, namespace: str, name: str) -> Manifest | None:
        now = self._monotonic()
        read_at, secret = self._given.get((namespace, name), (-LOOK_S, None))
        if now - read_at < LOOK_S and secret is not None:
            return secret
        secret = await self._writer.find(
            SECRET, {"metadata": {"namespace": namespace, "name": name}}
        )
        self._given = {key: each for key, each in self._given.items() if now - each[0] < LOOK_S}
        self._given[namespace, name] = now, secret
        return secret

    async def _ensure_issued(self, wanted: Manifest) -> bool:
        """Request a certificate from cert-manager; tell whether cert-manager is installed."""
        now, key = self._monotonic(), (wanted["metadata"]["namespace"], wanted["metadata"]["name"])
        asked_at, before = self._asked.get(key, (-LOOK_S, {}))
        if now - asked_at < LOOK_S and before == wanted:
            return True
        try:
            live = await self._writer.find(CERTIFICATE, wanted)
            if live is None:
                await self._writer.create(CERTIFICATE, wanted)
            elif not is_covered(wanted["spec"], live["spec"]):
                await self._writer.replace_spec(CERTIFICATE, wanted)
        except ApiError as error:
            if error.is_not_found:
                return False
            raise
        self._asked = {each: at for each, at in self._asked.items() if now - at[0] < LOOK_S}
        self._asked[key] = now, wanted
        return True

    async def _withdraw(
        self, pool: PoolView, names: Collection[str], refusals: Refusals
    ) -> set[str]:
        """Delete Certificates of a pool that no listener needs; return those that are left.

        The Secrets with what was issued are cert-manager's.
        """
        left: set[str] = set()
        for name in sorted(names):
            left.add(name)
            with refusals.noting(CERTIFICATE.kind, name):
                place = {"metadata": {"namespace": pool.namespace, "name": name}}
                live = await self._writer.find(CERTIFICATE, place)
                if live is not None and _is_ours(live, pool):
                    await self._writer.delete(CERTIFICATE, live)
                self._asked.pop((pool.namespace, name), None)
                left.discard(name)
        return left

    async def _withdraw_all(
        self, sight: CertificateSight, pool: PoolView, refusals: Refusals
    ) -> None:
        """Delete all Certificates of a pool whose listeners do not encrypt any more."""
        name = tls_secret_name(sight.cluster.name, pool.name)
        names = read_issued(sight.secret(name))
        if names and not await self._withdraw(pool, names, refusals):
            patch = {"metadata": {"annotations": {ISSUED_ANNOTATION: None}}}
            await self._writer.patch(SECRET, pool.namespace, name, patch)

    async def _apply(self, manifest: Manifest, sight: CertificateSight) -> None:
        child = WantedObject(SECRET, with_hash(manifest))
        if needs_apply(child.manifest, sight.live.get(child.key)):
            await self._writer.apply(child)

    async def _renew_mounts(
        self, stateful_set: str, manifest: Manifest, pods: Sequence[Manifest]
    ) -> None:
        """Tell nodes at once of a changed mounted Secret; else they check about every minute."""
        texts = "".join(text for _, text in sorted(manifest["data"].items()))
        digest = hashlib.sha256(texts.encode()).hexdigest()[:16]
        prefix = f"{stateful_set}-"
        for pod in pods:
            metadata = pod["metadata"]
            name, annotations = metadata["name"], metadata.get("annotations") or {}
            is_member = name.startswith(prefix) and name.removeprefix(prefix).isdecimal()
            is_going = "deletionTimestamp" in metadata
            if is_member and not is_going and annotations.get(CERTIFICATES_ANNOTATION) != digest:
                patch = {"metadata": {"annotations": {CERTIFICATES_ANNOTATION: digest}}}
                await self._writer.patch(POD, metadata["namespace"], name, patch)


def _hosts(sight: CertificateSight, plan: PoolPlan, listener: Listener) -> frozenset[str]:
    """Return the names by which clients of a listener reach the brokers of a pool."""
    added = frozenset(() if listener.tls is None else listener.tls.alternative_names)
    if listener.is_inside:
        return inside_hosts(sight.cluster) | added
    return added | outside_hosts(
        listener,
        sight.cluster,
        plan.pool,
        replicas=plan.certified,
        looked_up=plan.addresses,
        nodes=sight.nodes,
        bootstrap=bootstrap_of(listener, sight.cluster, sight.live),
    )


def _is_given(listener: Listener) -> bool:
    tls = listener.tls
    return tls is not None and (tls.certificate is not None or tls.issuer_ref is not None)


def _is_for_brokers(secret: Manifest, cluster: str) -> bool:
    """Tell whether a Secret is for a pool, for the controller, or for clients to trust.

    The Secrets of Users are renewed with their Users.
    """
    metadata = secret["metadata"]
    pool = (metadata.get("labels") or {}).get(POOL_LABEL, "")
    shared = {controller_tls_secret_name(cluster), trust_secret_name(cluster)}
    own = {tls_secret_name(cluster, pool)} if pool else shared
    return metadata["name"] in own and "deletionTimestamp" not in metadata


def _given_secrets(cluster: ClusterView | None, pool: str) -> dict[str, str]:
    """Return the other owners' Secrets that listeners show, by the key in the brokers' Secret."""
    given: dict[str, str] = {}
    for listener in () if cluster is None else tls_listeners(cluster):
        if cluster is None or listener.tls is None or not _is_given(listener):
            continue
        named = listener.tls.certificate
        given[keystore_key(listener.name)] = (
            issued_secret_name(cluster.name, pool, listener.name)
            if named is None
            else named.secret_name
        )
    return given


def _renewed(present: KeyPair, authorities: Authorities, now: datetime) -> KeyPair:
    """Return a certificate, or its replacement if this authority issued it and it is due."""
    authority = authorities.current
    is_good = not is_due(present.certificate, now, authority=authority.certificate)
    if is_good or not present.fits() or not _is_own(present.certificate, authorities):
        return present
    return reissue(authority, present.certificate, now, life=LEAF_LIFE)


def _is_own(certificate: bytes, authorities: Authorities) -> bool:
    issuers = (authorities.current.certificate, authorities.former)
    return any(each and is_issued_by(certificate, each) for each in issuers)


def _is_ours(secret: Mapping[str, Any], owner: ClusterView | PoolView) -> bool:
    owners = secret["metadata"].get("ownerReferences") or ()
    return any(each.get("uid") == owner.uid for each in owners)


def _host_of(pod: Mapping[str, Any]) -> str:
    return str((pod.get("status") or {}).get("hostIP") or "")
