"""When the certificate of a controller ends, so that somebody hears of it in time."""

from prometheus_client.core import GaugeMetricFamily, Metric

from fairlead_tls.followed_certificate import FollowedPeer
from fairlead_tls.peer_settings import CONTROLLER_LISTENER


def certificate_family(certificate: FollowedPeer | None) -> Metric:
    """Return the metric, as brokers have it; without a sample where sessions are in clear."""
    family = GaugeMetricFamily(
        "fairlead_certificate_not_after_timestamp_seconds",
        "Unix time at which the certificate ends that a listener shows.",
        labels=["listener"],
    )
    if certificate is not None:
        family.add_metric([CONTROLLER_LISTENER], certificate.current.ends_s)
    return family
