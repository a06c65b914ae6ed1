"""Names, labels and ports of the parts of a cluster. Pure."""

import re
from typing import Final

OPERATOR_PORT: Final = 9091
"""Port of the listener at which the operator and drills are clients of a secured cluster."""
INTERNAL_PORT: Final = 9094
HTTP_PORT: Final = 8080
REST_PORT: Final = 8082
OPERATOR_LISTENER: Final = "OPERATOR"
INTERNAL_LISTENER: Final = "INTERNAL"

DATA_FOLDER: Final = "/var/lib/fairlead"
CONFIG_FOLDER: Final = "/etc/fairlead"
TLS_FOLDER: Final = "/etc/fairlead-tls"
SECRET_FOLDER: Final = "/etc/fairlead-session"  # noqa: S105 (a path)
PROPERTIES_KEY: Final = "server.properties"
TRUST_KEY: Final = "ca.crt"
SECRET_KEY: Final = "secret"  # noqa: S105 (a key's name)
DATA_VOLUME: Final = "data"

CERTIFICATES_LABEL: Final = "fairlead.io/certificates"
"""On Secrets with certificates, which the operator follows: a rotation waits for all of them."""
CUT_LABEL: Final = "fairlead.io/cut"
"""On a pod that a drill isolates: the drill's policy applies to it, the cluster's does not."""
CLUSTER_LABEL: Final = "fairlead.io/cluster"
POOL_LABEL: Final = "fairlead.io/pool"
COMPONENT_LABEL: Final = "app.kubernetes.io/component"
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
FIELD_MANAGER: Final = "fairlead-operator"
CONFIG_HASH_ANNOTATION: Final = "fairlead.io/config-hash"
APPLIED_ANNOTATION: Final = "fairlead.io/applied"
RESTART_ANNOTATION: Final = "fairlead.io/restart"
RESTARTS_ALLOWED_ANNOTATION: Final = "fairlead.io/restarts-allowed-until"
"""On a LogCluster: a time until which brokers may restart outside of maintenance windows, too."""
ROTATE_ANNOTATION: Final = "fairlead.io/rotate-authority"
"""On a LogCluster: each new value requests a new authority. On the Secret: the last one done."""
ISSUED_ANNOTATION: Final = "fairlead.io/issued"
"""On the Secret of a pool: the Certificates that were requested for it, separated by commas."""
AWAKE_REPLICAS_ANNOTATION: Final = "fairlead.io/awake-replicas"
"""On the StatefulSet of a hibernating cluster: its number of brokers after hibernation."""
MANAGED_ANNOTATION: Final = "fairlead.io/managed"
MANAGED_SELECTOR: Final = f"{MANAGED_BY_LABEL}={FIELD_MANAGER},{CLUSTER_LABEL}"


def stateful_set_name(cluster: str, pool: str) -> str:
    """Return the name of a pool's StatefulSet; pods add `-ORDINAL`."""
    return f"{cluster}-{pool}"


def config_map_name(cluster: str, pool: str) -> str:
    """Return the name of the ConfigMap with a pool's server.properties."""
    return f"{cluster}-{pool}"


def headless_service_name(cluster: str) -> str:
    """Return the name of the Service that gives each broker's pod its own name."""
    return f"{cluster}-brokers"


def bootstrap_service_name(cluster: str) -> str:
    """Return the name of the bootstrap Service for clients inside Kubernetes."""
    return f"{cluster}-bootstrap"


def listener_service_name(cluster: str, listener: str, broker_id: int | None) -> str:
    """Return the name of an outside listener's Service: of a broker, or the bootstrap Service."""
    return f"{cluster}-{listener}-{'bootstrap' if broker_id is None else broker_id}"


def secret_name(cluster: str) -> str:
    """Return the name of the Secret that brokers and controllers share."""
    return f"{cluster}-session"


def tls_secret_name(cluster: str, pool: str) -> str:
    """Return the name of the Secret with the certificates of a pool's brokers, and their keys."""
    return f"{cluster}-{pool}-tls"


def controller_tls_secret_name(cluster: str) -> str:
    """Return the name of the Secret with the certificate that the controller shows to brokers."""
    return f"{cluster}-controller-tls"


def issued_secret_name(cluster: str, pool: str, listener: str) -> str:
    """Return the name of cert-manager's Certificate for a listener, and of its Secret."""
    return f"{cluster}-{pool}-{listener}-issued"


def trust_secret_name(cluster: str) -> str:
    """Return the name of the Secret with the authorities that clients and brokers trust."""
    return f"{cluster}-ca"


def authority_secret_name(cluster: str) -> str:
    """Return the name of the Secret with the authority's key, which the operator alone reads."""
    return f"{cluster}-ca-key"


def driver_account_name(cluster: str) -> str:
    """Return the name of the ServiceAccount with which drivers of StreamJobs create executors."""
    return f"{cluster}-spark"


def network_policy_name(cluster: str) -> str:
    """Return the name of the brokers' NetworkPolicy."""
    return f"{cluster}-brokers"


def data_volume(volume: int) -> str:
    """Return the name of a volume in the pods, with which its claims' names also begin.

    Names of clusters begin with a letter, so no claim of volume 0 has the name of another volume's.
    """
    return f"{DATA_VOLUME}-{volume}" if volume else DATA_VOLUME


def data_folder(volume: int) -> str:
    """Return where a volume is mounted."""
    return f"{DATA_FOLDER}-{volume}" if volume else DATA_FOLDER


def log_directory(volume: int) -> str:
    """Return the folder of a volume that is one of the broker's `log.dirs`."""
    return f"{data_folder(volume)}/log"


def claim_name(cluster: str, pool: str, ordinal: int, volume: int = 0) -> str:
    """Return the name of a broker's volume claim, as StatefulSets choose it."""
    return f"{data_volume(volume)}-{stateful_set_name(cluster, pool)}-{ordinal}"


def is_claim_name(name: str, cluster: str, pool: str) -> bool:
    """Tell whether a name is that of a pool's broker's volume claim, for any volume."""
    pattern = f"{DATA_VOLUME}(-[0-9]+)?-{re.escape(stateful_set_name(cluster, pool))}-[0-9]+"
    return re.fullmatch(pattern, name) is not None


def cluster_labels(cluster: str) -> dict[str, str]:
    """Return the labels of everything that belongs to a cluster."""
    return {
        "app.kubernetes.io/name": "fairlead",
        "app.kubernetes.io/instance": cluster,
        COMPONENT_LABEL: "broker",
        MANAGED_BY_LABEL: FIELD_MANAGER,
        CLUSTER_LABEL: cluster,
    }


def pool_labels(cluster: str, pool: str) -> dict[str, str]:
    """Return the labels of everything that belongs to a pool."""
    return cluster_labels(cluster) | {POOL_LABEL: pool}


def broker_selector(cluster: str) -> dict[str, str]:
    """Return the labels that select the pods of a cluster's brokers."""
    return {CLUSTER_LABEL: cluster, COMPONENT_LABEL: "broker"}


def pool_selector(cluster: str, pool: str) -> dict[str, str]:
    """Return the labels that select the pods of a pool; a StatefulSet can never change them."""
    return broker_selector(cluster) | {POOL_LABEL: pool}
