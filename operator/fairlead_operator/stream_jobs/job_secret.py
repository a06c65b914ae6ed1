"""Whether a job can log in with the Secret that it names, of its own namespace. Pure.

The Secret has the keys of a User's Secret: its librdkafka.config has all settings, and names
certificates by their files below the folder where the Secret is mounted. A mistake there would end
the driver a minute later with a TLS error; here the message names the key.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cryptography import x509

from fairlead_model.resources.stream_job import JobLogin
from fairlead_model.security.client_texts import parse_librdkafka
from fairlead_operator.specs.client_access import CONFIG_KEY, MOUNT_FOLDER, ClientAccess
from fairlead_operator.specs.secret_data import read_data
from fairlead_operator.stream_jobs.steps import Obstacle

NOT_FOUND: Final = "SecretNotFound"
INCOMPLETE: Final = "SecretIncomplete"
NOT_USABLE: Final = "SecretNotUsable"
NOT_READABLE: Final = "SecretNotReadable"
_CA: Final = "ssl.ca.location"
_CERTIFICATE: Final = "ssl.certificate.location"
_KEY: Final = "ssl.key.location"
_NEEDED: Final[dict[JobLogin, tuple[str, ...]]] = {
    "scram-sha-512": ("sasl.username", "sasl.password"),
    "tls": (_CERTIFICATE, _KEY),
}
"""Settings without which a login is impossible."""
_MECHANISM: Final = "SCRAM-SHA-512"
_PLAINTEXT: Final = "PLAINTEXT"
_PROTOCOLS: Final = (_PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PLACE: Final = f"{MOUNT_FOLDER}/"


@dataclass(frozen=True, slots=True)
class SecretSource:
    """The Secret that a job names."""

    namespace: str
    name: str

    def obstacle(self, reason: str, message: str) -> Obstacle:
        """Return the reason and text for the job; `message` continues after the Secret's name."""
        return reason, f"spec.authentication: Secret {self.name} {message}"

    def missing(self) -> Obstacle:
        """Return the reason and text if the Secret does not exist."""
        return self.obstacle(
            NOT_FOUND,
            f"is not in the namespace {self.namespace}: copy the Secret of a User there, with all "
            "its keys",
        )

    def forbidden(self, answer: str) -> Obstacle:
        """Return reason and text if the operator may not read it; `answer` is the API server's."""
        return self.obstacle(
            NOT_READABLE, f"cannot be read by the operator, which needs to get it: {answer}"
        )


def find_secret_obstacle(
    source: SecretSource,
    login: JobLogin,
    access: ClientAccess,
    held: Mapping[str, Any],
) -> Obstacle | None:
    """Return why a job cannot log in at a listener with a Secret, or None if it can."""
    data = read_data(held)
    text = data.get(CONFIG_KEY, b"")
    if not text.strip():
        return source.obstacle(
            INCOMPLETE,
            f"has no {CONFIG_KEY}, which says how to log in: copy all keys of a User's Secret, or "
            f"write this one with {', '.join(_NEEDED[login])}",
        )
    try:
        settings = parse_librdkafka(text.decode())
    except UnicodeDecodeError:
        return source.obstacle(NOT_USABLE, f"has a {CONFIG_KEY} that is no text")
    found = next(_setting_problems(settings, login, access), None)
    if found is not None:
        return source.obstacle(NOT_USABLE, f"has a {CONFIG_KEY} that {found}")
    for name in (_CA, _CERTIFICATE, _KEY):
        file = settings.get(name, "")
        if not file.startswith(_PLACE):
            continue
        key = file.removeprefix(_PLACE)
        if not data.get(key):
            return source.obstacle(
                INCOMPLETE, f"has no {key}, which its {CONFIG_KEY} names by {name}"
            )
        if name != _KEY and not _is_certificate(data[key]):
            return source.obstacle(NOT_USABLE, f"has a {key} that is no certificate in PEM")
    return None


def _setting_problems(
    settings: Mapping[str, str], login: JobLogin, access: ClientAccess
) -> Iterator[str]:
    """Yield the problems of the settings.

    Its readers may not have permission to read Secrets, so it contains no values but protocols.
    """
    protocol = settings.get("security.protocol", _PLAINTEXT).upper()
    if protocol != access.protocol:
        said = protocol if protocol in _PROTOCOLS else "that is none"
        yield (
            f"has a security.protocol {said}, and the listener at {access.bootstrap} speaks "
            f"{access.protocol}"
        )
    mechanism = settings.get("sasl.mechanism") or settings.get("sasl.mechanisms")
    if login == "scram-sha-512" and mechanism != _MECHANISM:
        yield f"does not have the sasl.mechanism of authentication.type {login}: {_MECHANISM}"
    for name in _NEEDED[login]:
        if not settings.get(name):
            yield f"has no {name}, which authentication.type {login} needs"
    if access.is_of_own_authority and not settings.get(_CA):
        yield (
            f"has no {_CA}: the LogCluster's own authority vouches for its listener, so say "
            f"{_CA}={_PLACE}ca.crt, and have the authority's certificate as ca.crt"
        )


def _is_certificate(text: bytes) -> bool:
    try:
        return bool(x509.load_pem_x509_certificates(text))
    except ValueError:
        return False
