"""When the certificate of a controller ends, so that somebody hears of it in time."""

from collections.abc import Mapping
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from fairlead_tls.followed_certificate import FollowedPeer
from fairlead_tls.peer_settings import CONTROLLER_LISTENER

NAME: Final = "fairlead_certificate_not_after_timestamp_seconds"
HELP: Final = "Unix time at which a listener's certificate expires."


def certificate_family(certificate: FollowedPeer | None) -> Metric:
    """Return the metric, as brokers have it; without a sample where sessions are in clear."""
    family = GaugeMetricFamily(NAME, HELP, labels=["listener"])
    if certificate is not None:
        family.add_metric([CONTROLLER_LISTENER], certificate.current.ends_s)
    return family


def certificates_family(ends_s: Mapping[tuple[str, str], float]) -> Metric:
    """Return the same metric for clusters on Kubernetes, each by its namespace and name."""
    family = GaugeMetricFamily(NAME, HELP, labels=["namespace", "cluster", "listener"])
    for key, end_s in ends_s.items():
        family.add_metric([*key, CONTROLLER_LISTENER], end_s)
    return family
