"""What the cluster knows of a broker."""

from dataclasses import dataclass
from typing import Final

from fairlead_model.features import SUPPORTED_FEATURES, FeatureRange
from fairlead_model.host_address import join_address
from fairlead_model.ids import NO_BROKER_EPOCH, BrokerEpoch, BrokerId

REST_ENDPOINT: Final = "REST"
"""Name of the endpoint of a broker's HTTP API. Kafka clients are not told of this endpoint."""
REST_TLS_ENDPOINT: Final = "REST_TLS"
"""Name of the endpoint of the HTTP API over TLS."""
REST_ENDPOINTS: Final = (REST_ENDPOINT, REST_TLS_ENDPOINT)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one listener of a broker can be reached (its advertised address)."""

    name: str
    host: str
    port: int
    is_internal: bool = False
    """True for the listener that only other brokers and the controller use."""


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """One broker as it last registered. The controller sets `fenced` and the shutdown flag."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch = NO_BROKER_EPOCH
    endpoints: tuple[Endpoint, ...] = ()
    host_name: str = ""
    """Name of the broker's machine: the first failure domain of placement."""
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    directory_id: str = ""
    """Incarnation of the data disk; a different id means that the data is gone. With several log
    directories this id stands for all of them: it changes as soon as one of them is replaced."""
    start_id: str = ""
    """Random id of this process start; a registration that repeats it keeps its broker epoch."""
    boot_id: str = ""
    pod_uid: str = ""
    is_clean: bool = False
    """In a broker's request: its disk has the marker of a clean stop. In an image: the controller's
    verdict that this start still has every record that the start before had acknowledged."""
    previous_broker_epoch: BrokerEpoch = NO_BROKER_EPOCH
    """Broker epoch on the disk: the marker's, else that of the last start that registered."""
    is_recovered_whole: bool = False
    """Of a start without a marker: recovery found at most a torn last batch in each log, and
    `syncfs` on a fresh descriptor reported no write-back error."""
    min_insync_replicas: int = 1
    """The broker's static default; the controller keeps the value of each partition."""
    features: tuple[FeatureRange, ...] = SUPPORTED_FEATURES
    """Feature levels that the broker supports; `UNSAID_FEATURES` if its registration has none."""
    directory_ids: tuple[str, ...] = ()
    """Incarnations of the broker's log directories, if it has several; else empty."""
    is_cordoned: bool = False
    """True if none of the broker's log directories takes new replicas (KIP-1066)."""
    allows_unclean_election: bool = False
    """The broker's static default of `unclean.leader.election.enable`."""

    @property
    def incarnations(self) -> tuple[str, ...]:
        """Incarnation of each log directory of the broker."""
        return self.directory_ids or ((self.directory_id,) if self.directory_id else ())

    @property
    def client_endpoints(self) -> tuple[Endpoint, ...]:
        """Addresses at which Kafka clients reach the broker."""
        return tuple(
            each
            for each in self.endpoints
            if not each.is_internal and each.name not in REST_ENDPOINTS
        )

    @property
    def rest_url(self) -> str | None:
        """Address at which HTTP clients reach the broker; None if it serves no HTTP API."""
        endpoint = self.endpoint(REST_TLS_ENDPOINT) or self.endpoint(REST_ENDPOINT)
        if endpoint is None:
            return None
        scheme = "https" if endpoint.name == REST_TLS_ENDPOINT else "http"
        return f"{scheme}://{join_address(endpoint.host, endpoint.port)}"

    @property
    def may_lead(self) -> bool:
        """True if leaders may be elected on this broker."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return the advertised address of a listener; None if the broker has no such listener."""
        for endpoint in self.endpoints:
            if endpoint.name == listener:
                return endpoint
        return None
