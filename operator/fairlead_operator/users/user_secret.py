"""The Secret of a User: its content, its owner, and when a new one is needed. Pure."""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fairlead_kube.kinds import SECRET, USER
from fairlead_model.security.client_texts import (
    render_curl,
    render_java,
    render_librdkafka,
    scram_jaas_config,
)
from fairlead_model.security.scram import SALT_SEED_BYTES, build_salt
from fairlead_operator.certificates.authority import KeyPair
from fairlead_operator.resources.user import LoginType
from fairlead_operator.specs.client_access import (
    CONFIG_KEY,
    CURL_KEY,
    MOUNT_FOLDER,
    ClientAccess,
    HttpAccess,
    UserAccess,
)
from fairlead_operator.specs.names import (
    CERTIFICATES_LABEL,
    CLUSTER_LABEL,
    FIELD_MANAGER,
    MANAGED_BY_LABEL,
)
from fairlead_operator.specs.secret_data import read_data
from fairlead_operator.specs.views import build_owner_reference
from fairlead_operator.users.user_resource import UserResource

USER_LABEL: Final = "fairlead.io/user"
PASSWORD_KEY: Final = "password"  # noqa: S105 (a key's name)
_SCRAM: Final = "SCRAM-SHA-512"
_PEM: Final = {"ssl.truststore.type": "PEM"}

Data = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class UserMaterial:
    """The parts of a Secret that cannot be derived from anything else."""

    password: str = field(default="", repr=False)
    certificate: bytes = b""
    """With the certificates of intermediate authorities; PEM."""
    key: bytes = field(default=b"", repr=False)
    keystore: bytes = field(default=b"", repr=False)
    """Certificate and key as PKCS#12."""
    keystore_password: str = field(default="", repr=False)

    def has_all_of(self, login: LoginType) -> bool:
        """Tell whether everything that a login needs is there and usable."""
        if login == "tls":
            is_text = self.certificate.isascii() and self.key.isascii()
            fits = is_text and KeyPair(self.certificate, self.key).fits()
            return fits and bool(self.keystore and self.keystore_password)
        return login == "oauth" or password_problem(self.password) == ""


def read_material(data: Data) -> UserMaterial:
    """Read the content of a Secret."""
    return UserMaterial(
        password=_text(data, PASSWORD_KEY),
        certificate=data.get("user.crt", b""),
        key=data.get("user.key", b""),
        keystore=data.get("user.p12", b""),
        keystore_password=_text(data, "user.password"),
    )


def password_problem(password: str) -> str:
    """Return why a password cannot be used; empty if it can."""
    if not password:
        return "it is empty"
    if password != password.strip():
        return "it begins or ends with white space, perhaps the end of a line"
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in password):
        return "it has control characters"
    return ""


def build_data(
    resource: UserResource,
    material: UserMaterial,
    access: UserAccess,
    trusted: bytes,
) -> dict[str, bytes]:
    """Return the content of the Secret: settings for each way that accepts the login."""
    data: dict[str, bytes] = {"username": resource.user.encode()}
    if resource.login == "scram-sha-512":
        data[PASSWORD_KEY] = material.password.encode()
        data["sasl.jaas.config"] = scram_jaas_config(resource.user, material.password).encode()
    elif resource.login == "tls":
        data |= {
            "user.crt": material.certificate,
            "user.key": material.key,
            "user.p12": material.keystore,
            "user.password": material.keystore_password.encode(),
        }
    if trusted:
        data["ca.crt"] = trusted
    if access.kafka is not None:
        java = java_settings(resource, material, access.kafka, trusted)
        plain = librdkafka_settings(resource, material, access.kafka)
        data |= {
            "bootstrap.servers": access.kafka.bootstrap.encode(),
            "client.properties": render_java(java).encode(),
            CONFIG_KEY: render_librdkafka(plain).encode(),
        }
    if access.http is not None:
        curl = curl_settings(resource, material, access.http)
        data |= {
            "rest.url": access.http.url.encode(),
            CURL_KEY: render_curl(curl).encode(),
        }
    return data


def java_settings(
    resource: UserResource, material: UserMaterial, access: ClientAccess, trusted: bytes
) -> dict[str, str]:
    """Return the settings of Java's clients and Kafka's tools; certificates are included in PEM."""
    settings = {"bootstrap.servers": access.bootstrap, "security.protocol": access.protocol}
    if resource.login == "scram-sha-512":
        settings |= {
            "sasl.mechanism": _SCRAM,
            "sasl.jaas.config": scram_jaas_config(resource.user, material.password),
        }
    elif resource.login == "oauth":
        settings["sasl.mechanism"] = "OAUTHBEARER"
    else:
        settings |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": material.certificate.decode(),
            "ssl.keystore.key": material.key.decode(),
        }
    if access.is_of_own_authority:
        settings |= _PEM | {"ssl.truststore.certificates": trusted.decode()}
    return settings


def librdkafka_settings(
    resource: UserResource, material: UserMaterial, access: ClientAccess
) -> dict[str, str]:
    """Return the settings of librdkafka and confluent-kafka."""
    settings = {
        "bootstrap.servers": access.bootstrap,
        "security.protocol": access.protocol.lower(),
    }
    if resource.login == "scram-sha-512":
        settings |= {
            "sasl.mechanism": _SCRAM,
            "sasl.username": resource.user,
            "sasl.password": material.password,
        }
    elif resource.login == "oauth":
        settings["sasl.mechanism"] = "OAUTHBEARER"
    else:
        settings |= {
            "ssl.certificate.location": f"{MOUNT_FOLDER}/user.crt",
            "ssl.key.location": f"{MOUNT_FOLDER}/user.key",
        }
    if access.is_of_own_authority:
        settings["ssl.ca.location"] = f"{MOUNT_FOLDER}/ca.crt"
    return settings


def curl_settings(
    resource: UserResource, material: UserMaterial, access: HttpAccess
) -> dict[str, str]:
    """Return curl's settings for the HTTP API; a token comes from whoever has issued it."""
    settings: dict[str, str] = {}
    if resource.login == "scram-sha-512":
        settings["user"] = f"{resource.user}:{material.password}"
    elif resource.login == "tls":
        settings |= {"cert": f"{MOUNT_FOLDER}/user.crt", "key": f"{MOUNT_FOLDER}/user.key"}
    if access.is_of_own_authority:
        settings["cacert"] = f"{MOUNT_FOLDER}/ca.crt"
    return settings


def build_secret(resource: UserResource, data: Data) -> dict[str, Any]:
    """Return the manifest of a new Secret."""
    return {
        "apiVersion": SECRET.api_version,
        "kind": SECRET.kind,
        "metadata": {
            "name": resource.name,
            "namespace": resource.namespace,
            "labels": secret_labels(resource),
            "ownerReferences": [build_owner_reference(USER, resource.name, resource.uid)],
        },
        "type": "Opaque",
        "data": _encoded(data),
    }


def secret_labels(resource: UserResource) -> dict[str, str]:
    """Return the labels by which the operator finds the Secret."""
    labels = {
        MANAGED_BY_LABEL: FIELD_MANAGER,
        CLUSTER_LABEL: resource.cluster,
        USER_LABEL: "true",
    }
    if resource.login == "tls":
        labels[CERTIFICATES_LABEL] = "true"
    return labels


def corrected_secret(
    held: Mapping[str, Any], resource: UserResource, data: Data
) -> dict[str, Any] | None:
    """Return the whole Secret as it should be; None if it is correct.

    Labels and annotations that others have added stay.
    """
    metadata = held["metadata"]
    labels = dict(metadata.get("labels") or {})
    wanted = labels | secret_labels(resource)
    if read_data(held) == dict(data) and labels == wanted:
        return None
    return {**held, "metadata": {**metadata, "labels": wanted}, "data": _encoded(data)}


def is_owned(held: Mapping[str, Any], resource: UserResource) -> bool:
    """Tell whether a Secret belongs to this very resource."""
    owners = held["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == resource.uid for owner in owners)


def salt_of(held: Mapping[str, Any]) -> bytes:
    """Return the salt for the password in a Secret.

    It is always the same, so that a credential that is derived again is equal and ends no session.
    Salts are not secret: clients see them before they log in.
    """
    digest = hashlib.sha256(str(held["metadata"]["uid"]).encode()).digest()
    return build_salt(digest[:SALT_SEED_BYTES])


def revision_of(held: Mapping[str, Any]) -> str:
    """Return the name under which the controller knows the password in a Secret."""
    metadata = held["metadata"]
    return f"{metadata['uid']}/{metadata['resourceVersion']}"


def _encoded(data: Data) -> dict[str, str]:
    return {key: base64.b64encode(value).decode() for key, value in data.items()}


def _text(data: Data, key: str) -> str:
    try:
        return data.get(key, b"").decode()
    except UnicodeDecodeError:
        return ""
