"""The Secrets with authorities and certificates, and the names in certificates. Pure."""

import base64
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from fairlead_kube.kinds import CERTIFICATE, SECRET, SERVICE
from fairlead_operator.certificates.authority import KeyPair
from fairlead_operator.certificates.rotation import (
    CA_CERTIFICATE,
    Authorities,
    write_authorities,
)
from fairlead_operator.resources import Listener
from fairlead_operator.specs.listeners import (
    OutsideAddress,
    needs_lookup,
    shared_address,
)
from fairlead_operator.specs.names import (
    CERTIFICATES_LABEL,
    ISSUED_ANNOTATION,
    ROTATE_ANNOTATION,
    TRUST_KEY,
    authority_secret_name,
    bootstrap_service_name,
    cluster_labels,
    controller_tls_secret_name,
    headless_service_name,
    issued_secret_name,
    listener_service_name,
    pool_labels,
    tls_secret_name,
    trust_secret_name,
)
from fairlead_operator.specs.views import ClusterView, Manifest, PoolView, build_child

TLS_CERTIFICATE: Final = "tls.crt"
TLS_KEY: Final = "tls.key"
AUTHORITY_TYPE: Final = "fairlead.io/authority"
CERTIFICATES_ANNOTATION: Final = "fairlead.io/certificates"
"""On a pod: what it is to mount. A change of it makes the node renew mounted Secrets at once."""
_INSIDE: Final = ("svc", "svc.cluster.local")


def build_authority_secret(
    cluster: ClusterView, authorities: Authorities, *, rotated: str
) -> Manifest:
    """Return the Secret with the authority's key, which only the operator needs."""
    manifest = _secret(cluster, authority_secret_name(cluster.name), cluster_labels(cluster.name))
    if rotated:
        manifest["metadata"]["annotations"] = {ROTATE_ANNOTATION: rotated}
    return manifest | {"type": AUTHORITY_TYPE, "data": write_authorities(authorities)}


def build_trust_secret(cluster: ClusterView, authorities: Authorities) -> Manifest:
    """Return the Secret with the certificates that clients have to trust."""
    manifest = _secret(cluster, trust_secret_name(cluster.name), cluster_labels(cluster.name))
    data = {CA_CERTIFICATE: _encode(authorities.trusted)}
    return manifest | {"type": "Opaque", "data": data}


def build_tls_secret(
    cluster: ClusterView,
    pool: PoolView,
    trusted: bytes,
    keystores: Mapping[str, bytes],
    *,
    issued: Collection[str] = (),
) -> Manifest:
    """Return the Secret that the pods of a pool mount: `keystores` by their keys.

    It records the names of the Certificates that are `issued` for the pool.
    """
    name, labels = tls_secret_name(cluster.name, pool.name), pool_labels(cluster.name, pool.name)
    texts = {TRUST_KEY: trusted, **keystores}
    data = {key: _encode(text) for key, text in texts.items()}
    manifest = _secret(pool, name, labels)
    if issued:
        manifest["metadata"]["annotations"] = {ISSUED_ANNOTATION: ",".join(sorted(issued))}
    return manifest | {"type": "Opaque", "data": data}


def read_issued(secret: Mapping[str, Any] | None) -> set[str]:
    """Return the names of the Certificates that the Secret of a pool records."""
    annotations = ((secret or {}).get("metadata") or {}).get("annotations") or {}
    return {name for name in annotations.get(ISSUED_ANNOTATION, "").split(",") if name}


def build_controller_secret(cluster: ClusterView, trusted: bytes, pair: KeyPair) -> Manifest:
    """Return the Secret with which the controller uses TLS to the cluster's brokers."""
    name = controller_tls_secret_name(cluster.name)
    manifest = _secret(cluster, name, cluster_labels(cluster.name))
    texts = {TRUST_KEY: trusted, TLS_CERTIFICATE: pair.certificate, TLS_KEY: pair.key}
    data = {key: _encode(text) for key, text in texts.items()}
    return manifest | {"type": "kubernetes.io/tls", "data": data}


def rebuild_secret(live: Mapping[str, Any], texts: Mapping[str, bytes]) -> Manifest:
    """Return one of our Secrets with other contents, and everything else unchanged."""
    live_metadata = live["metadata"]
    kept = ("name", "namespace", "labels", "ownerReferences")
    metadata = {field: live_metadata[field] for field in kept if field in live_metadata}
    annotations = live_metadata.get("annotations") or {}
    if ISSUED_ANNOTATION in annotations:
        metadata["annotations"] = {ISSUED_ANNOTATION: annotations[ISSUED_ANNOTATION]}
    return {
        "apiVersion": SECRET.api_version,
        "kind": SECRET.kind,
        "metadata": metadata,
        "type": live["type"],
        "data": {key: _encode(text) for key, text in texts.items()},
    }


def build_certificate(
    cluster: ClusterView, pool: PoolView, listener: Listener, hosts: Iterable[str]
) -> Manifest | None:
    """Return the Certificate for cert-manager to issue; None if no issuer is named."""
    if listener.tls is None or listener.tls.issuer_ref is None:
        return None
    issuer = listener.tls.issuer_ref
    name = issued_secret_name(cluster.name, pool.name, listener.name)
    manifest = build_child(CERTIFICATE, pool, name, pool_labels(cluster.name, pool.name))
    hosts = sorted(hosts)
    spec = {
        "secretName": name,
        "commonName": cluster.name,
        "dnsNames": [host for host in hosts if not _is_address(host)],
        "ipAddresses": [host for host in hosts if _is_address(host)],
        "usages": ["digital signature", "server auth"],
        "privateKey": {
            "algorithm": "ECDSA",
            "size": 256,
            "encoding": "PKCS8",
            "rotationPolicy": "Always",
        },
        "issuerRef": {"name": issuer.name, "kind": issuer.kind, "group": issuer.group},
    }
    return manifest | {"spec": {field: value for field, value in spec.items() if value}}


def inside_hosts(cluster: ClusterView) -> frozenset[str]:
    """Return the names that clients inside Kubernetes use: pods' own, and the bootstrap Service."""
    service, pods = bootstrap_service_name(cluster.name), headless_service_name(cluster.name)
    short = f"{service}.{cluster.namespace}"
    return frozenset(
        {service, short}
        | {f"{short}.{domain}" for domain in _INSIDE}
        | {f"*.{pods}.{cluster.namespace}.{domain}" for domain in _INSIDE}
    )


def outside_hosts(
    listener: Listener,
    cluster: ClusterView,
    pool: PoolView,
    *,
    replicas: int,
    looked_up: Mapping[int, Mapping[str, OutsideAddress]],
    nodes: Sequence[str],
    bootstrap: Mapping[str, Any] | None,
) -> frozenset[str]:
    """Return the names that outside clients use; `nodes` are the addresses of known nodes.

    `looked_up` has the addresses of brokers that only Kubernetes knows, `bootstrap` is the live
    bootstrap Service of the listener.
    """
    hosts = set()
    for ordinal, broker_id in enumerate(pool.broker_ids(replicas)):
        address = looked_up.get(broker_id, {}).get(listener.name)
        if address is None and not needs_lookup(listener):
            address = shared_address(listener, cluster, pool)
        if address is None:
            continue
        host = (
            address.host.replace("${BROKER_ID}", str(broker_id))
            .replace("${ORDINAL}", str(ordinal))
            .replace("${POD_NAME}", pool.pod_name(ordinal))
        )
        hosts |= {host.replace("${HOST_IP}", node) for node in nodes or ("${HOST_IP}",)}
    if listener.type == "NodePort":
        hosts |= set(nodes)
    ingress = (((bootstrap or {}).get("status") or {}).get("loadBalancer") or {}).get("ingress")
    for entry in ingress or ():
        hosts |= {str(entry[field]) for field in ("hostname", "ip") if entry.get(field)}
    service = listener_service_name(cluster.name, listener.name, None)
    hosts.add(f"{service}.{cluster.namespace}.svc")
    # A node that is not known yet has no address for the certificate.
    return frozenset(host for host in hosts if "${" not in host)


def decode_secret(manifest: Mapping[str, Any] | None, key: str) -> bytes:
    """Return a Secret's content under a key; empty if it has none that can be read."""
    text = ((manifest or {}).get("data") or {}).get(key, "")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""


def bootstrap_of(
    listener: Listener, cluster: ClusterView, live: Mapping[tuple[str, str], Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """Return the live bootstrap Service of an outside listener."""
    return live.get((SERVICE.kind, listener_service_name(cluster.name, listener.name, None)))


def _secret(owner: ClusterView | PoolView, name: str, labels: Mapping[str, str]) -> Manifest:
    return build_child(SECRET, owner, name, {**labels, CERTIFICATES_LABEL: "true"})


def _encode(text: bytes) -> str:
    return base64.b64encode(text).decode()


def _is_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdecimal()
