"""Creates the Secrets of Users, and reverts others' changes of them.

The last written content is kept in memory, so a password that somebody overwrites is restored.
After a restart, the content of the Secret counts.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from fairlead_kube.client import KubeClient
from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import SECRET
from fairlead_operator.certificates.authority import is_due, issue_client, renewal_time
from fairlead_operator.certificates.rotation import (
    CA_CERTIFICATE,
    Authorities,
    AuthorityError,
    read_authorities,
)
from fairlead_operator.events import EventWriter
from fairlead_operator.refusals import describe_refusal, is_refusal
from fairlead_operator.resources.user import SecretKeyRef
from fairlead_operator.specs.client_access import UserAccess
from fairlead_operator.specs.names import authority_secret_name, trust_secret_name
from fairlead_operator.specs.secret_data import read_data
from fairlead_operator.topics.topic_resource import ResourceKey
from fairlead_operator.users.keystores import build_pkcs12
from fairlead_operator.users.user_resource import UserResource
from fairlead_operator.users.user_secret import (
    UserMaterial,
    build_data,
    build_secret,
    corrected_secret,
    is_owned,
    password_problem,
    read_material,
)

Manifest = dict[str, Any]
PASSWORD_BYTES: Final = 24
"""Random bytes, which become 32 characters."""
SOURCE_LOOK_S: Final = 20.0
"""How often the source of a password is read: other owners' Secrets are not watched."""


class UserSecretError(Exception):
    """The Secret cannot be as it should be; reason and message are for the condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class _Sources:
    """The sources of a Secret's content, besides its present content."""

    access: UserAccess
    given: str | None
    """The password that somebody else has chosen."""
    trusted: bytes
    """Certificates of authorities that a client has to trust."""
    authorities: Authorities | None
    """The authorities that issue certificates."""


@dataclass(frozen=True, slots=True)
class UserSecret:
    """The present Secret of a User in the API server."""

    manifest: Manifest
    material: UserMaterial
    look_after_s: float | None
    """After how long to check it again, if necessary."""


class UserSecrets:
    """The Secrets of all Users; `find` returns a known Secret by namespace and name."""

    def __init__(
        self,
        client: KubeClient,
        find: Callable[[ResourceKey], Manifest | None],
        events: EventWriter,
        *,
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._find = find
        self._events = events
        self._wall_clock = wall_clock
        self._written: dict[ResourceKey, tuple[str, dict[str, bytes]]] = {}
        """Uid of the Secret, and the content that we last wrote into it."""

    def forget(self, key: ResourceKey) -> None:
        """Forget a deleted User."""
        self._written.pop(key, None)

    async def ensure(
        self, resource: UserResource, user: Manifest, access: UserAccess
    ) -> UserSecret:
        """Return the Secret of a User, created or corrected if necessary.

        UserSecretError if there cannot be one; ApiError with a conflict if the informer is behind.
        """
        sources = _Sources(
            access,
            await self._given_password(resource),
            self._trusted(resource, access),
            self._authorities(resource),
        )
        held = self._find(resource.key)
        if held is None:
            held = await self._create(resource, user, sources)
        if not is_owned(held, resource):
            raise UserSecretError(
                "SecretConflict",
                f"Secret {resource.name} exists already and does not belong to this User: it is "
                "left as it is; delete it, or create the User under another name",
            )
        uid = held["metadata"]["uid"]
        known_uid, known = self._written.get(resource.key, ("", {}))
        is_known = known_uid == uid
        before = read_material(known if is_known else read_data(held))
        material = self._material(resource, before, sources)
        data = build_data(resource, material, access, sources.trusted)
        corrected = corrected_secret(held, resource, data)
        if corrected is not None:
            held = await self._replace(resource, corrected)
            if is_known and known == data:
                message = f"Secret {resource.name} was changed by somebody else: it is put back"
                await self._events.emit(user, "SecretPutBack", message, "Warning")
        self._written[resource.key] = (uid, data)
        return UserSecret(held, material, self._next_look_s(resource, material))

    async def _create(self, resource: UserResource, user: Manifest, sources: _Sources) -> Manifest:
        material = self._material(resource, UserMaterial(), sources)
        data = build_data(resource, material, sources.access, sources.trusted)
        try:
            with _refusing(resource):
                made = await self._client.create(
                    SECRET, resource.namespace, build_secret(resource, data)
                )
        except ApiError as error:
            if not error.is_conflict:
                raise
            return await self._get_another(resource, error)
        if resource.key in self._written:
            message = f"Secret {resource.name} was deleted: another one is there, with new contents"
            await self._events.emit(user, "SecretReplaced", message)
        self._written[resource.key] = (made["metadata"]["uid"], data)
        return made

    async def _get_another(self, resource: UserResource, conflict: ApiError) -> Manifest:
        """Return the Secret that has the name; raise the conflict if it was deleted meanwhile.

        After a conflict the caller tries again. A not-found error would be taken for a deleted
        User, and nobody would report the other owner's Secret.
        """
        try:
            return await self._client.get(SECRET, resource.namespace, resource.name)
        except ApiError as error:
            if error.is_not_found:
                raise conflict from error
            raise

    async def _replace(self, resource: UserResource, corrected: Manifest) -> Manifest:
        with _refusing(resource):
            return await self._client.replace(SECRET, resource.namespace, resource.name, corrected)

    def _material(
        self, resource: UserResource, before: UserMaterial, sources: _Sources
    ) -> UserMaterial:
        """Return the present material if it is still good, or make new material."""
        if resource.login == "oauth":
            return UserMaterial()
        if resource.login == "scram-sha-512":
            if sources.given is not None:
                return UserMaterial(password=sources.given)
            if before.has_all_of("scram-sha-512"):
                return UserMaterial(password=before.password)
            return UserMaterial(password=secrets.token_urlsafe(PASSWORD_BYTES))
        if sources.authorities is None:
            raise _no_authority(resource)
        now, current = self._wall_clock(), sources.authorities.current
        if before.has_all_of("tls") and not is_due(
            before.certificate, now, authority=current.certificate
        ):
            return before
        pair = issue_client(current, resource.user, now)
        password = secrets.token_urlsafe(PASSWORD_BYTES)
        return UserMaterial(
            certificate=pair.certificate,
            key=pair.key,
            keystore=build_pkcs12(resource.user, pair, current.certificate, password),
            keystore_password=password,
        )

    def _trusted(self, resource: UserResource, access: UserAccess) -> bytes:
        if not access.is_of_own_authority:
            return b""
        held = self._find((resource.namespace, trust_secret_name(resource.cluster)))
        trusted = read_data(held or {}).get(CA_CERTIFICATE, b"")
        if not trusted or not trusted.isascii():
            raise _no_authority(resource)
        return trusted

    def _authorities(self, resource: UserResource) -> Authorities | None:
        name = authority_secret_name(resource.cluster)
        held = self._find((resource.namespace, name))
        if resource.login != "tls" or held is None:
            return None
        try:
            return read_authorities(held.get("data") or {})
        except AuthorityError as error:
            raise UserSecretError("NoAuthority", f"Secret {name}: {error}") from error

    async def _given_password(self, resource: UserResource) -> str | None:
        source = resource.password
        if source is None:
            return None
        path = "spec.authentication.password"
        try:
            held = await self._client.get(SECRET, resource.namespace, source.name)
        except ApiError as error:
            if not error.is_not_found:
                raise
            message = f"{path}: there is no Secret {source.name}"
            raise UserSecretError("PasswordMissing", message) from error
        password = _password_in(held, source)
        if password is None:
            message = f"{path}: Secret {source.name} has no text under the key {source.key}"
            raise UserSecretError("PasswordMissing", message)
        if problem := password_problem(password):
            message = f"{path}: the password under {source.key} cannot be used: {problem}"
            raise UserSecretError("InvalidPassword", message)
        return password

    def _next_look_s(self, resource: UserResource, material: UserMaterial) -> float | None:
        if resource.password is not None:
            return SOURCE_LOOK_S
        if resource.login != "tls":
            return None
        left = renewal_time(material.certificate) - self._wall_clock()
        return max(left, timedelta(seconds=1)).total_seconds()


def _password_in(held: Mapping[str, Any], source: SecretKeyRef) -> str | None:
    try:
        return read_data(held)[source.key].decode()
    except (KeyError, UnicodeDecodeError):
        return None


def _no_authority(resource: UserResource) -> UserSecretError:
    return UserSecretError(
        "NoAuthority",
        f"LogCluster {resource.cluster} has no authority yet that issues certificates (Secrets "
        f"{trust_secret_name(resource.cluster)} and {authority_secret_name(resource.cluster)})",
    )


@contextmanager
def _refusing(resource: UserResource) -> Iterator[None]:
    """Raise UserSecretError for a write that the API server refuses until somebody acts."""
    try:
        yield
    except ApiError as error:
        if not is_refusal(error):
            raise
        message = describe_refusal(SECRET.kind, resource.name, error)
        raise UserSecretError("SecretRefused", message) from error
