"""Listeners of a LogCluster: their ports and addresses, protocols and authentication."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from fairlead_model.resources.resource_shape import Bound, Rule, Text, Whole
from fairlead_operator.resources.ip_families import FAMILY_RULES, IpFamily, IpFamilyPolicy

ListenerType: TypeAlias = Literal["Internal", "NodePort", "LoadBalancer"]
ExternalTrafficPolicy: TypeAlias = Literal["Cluster", "Local"]
AuthenticationType: TypeAlias = Literal["scram-sha-512", "tls", "oauth"]
OUTSIDE_PORT_MIN: Final = 9095
INTERNAL_PORT: Final = 9094
"""The listener between brokers."""
RESERVED_NAMES: Final = ("client", "internal", "operator", "rest")
"""Listeners that the operator makes itself, and that of the HTTP API; brokers see these names in
capitals."""
PLACEHOLDERS: Final = (
    "brokerId",
    "ordinal",
    "pod",
    "pool",
    "cluster",
    "namespace",
    "hostIP",
    "nodePort",
)
"""What the advertised templates of a listener may name in braces."""


_PLACEHOLDER: Final = "|".join(PLACEHOLDERS)
_PLACEHOLDERS_SHOWN: Final = " ".join(f"{{{name}}}" for name in PLACEHOLDERS)
_SOURCE_RANGE: Final = r"[0-9a-fA-F.:]{2,45}/[0-9]{1,3}"
_NAME_HINT: Final = "write a name or an address, without a scheme and a port"


_NAME: Final = Text(
    maximum=253,
    minimum=1,
    pattern="[a-z0-9]([-a-z0-9.]*[a-z0-9])?",
    hint="a name in Kubernetes has lower case letters, digits, '-' and '.', and begins and ends "
    "with a letter or digit",
)
_URL: Final = Text(
    maximum=512,
    minimum=1,
    pattern="(https|file)://.+",
    hint="write a URL that begins with https:// or file://",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateSecret:
    """A certificate in a Secret, which the operator does not renew."""

    secret_name: Annotated[
        str,
        "Secret of this namespace with tls.crt (the certificate first, then those of "
        "intermediate authorities) and tls.key. Brokers use a changed Secret without a restart.",
        _NAME,
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerRef:
    """An issuer of cert-manager."""

    name: Annotated[str, "Name of the issuer.", _NAME]
    kind: Annotated[
        Literal["Issuer", "ClusterIssuer"],
        "Issuer: an issuer of this namespace. ClusterIssuer: an issuer of all namespaces.",
    ] = "Issuer"
    group: Annotated[str, "API group of the issuer.", _NAME] = "cert-manager.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerTls:
    """TLS of a listener."""

    RULES: ClassVar = (
        Rule(
            cel="!has(self.certificate) || !has(self.issuerRef)",
            message="a certificate comes from a Secret or from an issuer: leave one out",
            field="issuerRef",
            holds=lambda tls: tls.certificate is None or tls.issuer_ref is None,
        ),
    )

    enabled: Annotated[bool, "Encrypt connections."] = True
    certificate: Annotated[
        CertificateSecret | None,
        "Certificate that the brokers show at this listener. Default: the cluster's own "
        "authority issues one, and clients verify it with ca.crt of the Secret NAME-ca.",
    ] = None
    issuer_ref: Annotated[
        IssuerRef | None, "Issuer of cert-manager that issues the certificate instead."
    ] = None
    alternative_names: Annotated[
        tuple[Annotated[str, Text(253, 1, pattern=r"[A-Za-z0-9.:*-]+", hint=_NAME_HINT)], ...],
        "Further names and addresses that the certificate is for, such as the name of a load "
        "balancer in front of the brokers.",
        Bound(32),
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Authentication:
    """How clients of a listener authenticate."""

    RULES: ClassVar = (
        Rule(
            cel="self.type != 'oauth' || (has(self.jwksEndpointUri) && has(self.validIssuerUri) "
            "&& has(self.audience))",
            message="oauth needs jwksEndpointUri, validIssuerUri and audience: set all three",
            field="type",
            holds=lambda auth: (
                auth.type != "oauth"
                or bool(auth.jwks_endpoint_uri and auth.valid_issuer_uri and auth.audience)
            ),
        ),
        Rule(
            cel="self.type == 'oauth' || (!has(self.jwksEndpointUri) && !has(self.validIssuerUri) "
            "&& !has(self.audience) && !has(self.userNameClaim))",
            message="jwksEndpointUri, validIssuerUri, audience and userNameClaim are for oauth: "
            "leave them out",
            field="type",
            holds=lambda auth: (
                auth.type == "oauth"
                or not (
                    auth.jwks_endpoint_uri
                    or auth.valid_issuer_uri
                    or auth.audience
                    or auth.user_name_claim
                )
            ),
        ),
    )

    type: Annotated[
        AuthenticationType,
        "scram-sha-512: a name and a password. tls: a certificate of the cluster's own authority, "
        "whose common name is the user. oauth: a token, by OAUTHBEARER.",
    ]
    jwks_endpoint_uri: Annotated[
        str | None, "URL of the public keys (JWKS) by which brokers verify tokens.", _URL
    ] = None
    valid_issuer_uri: Annotated[
        str | None, "Issuer (iss) of all tokens.", Text(maximum=512, minimum=1)
    ] = None
    audience: Annotated[
        str | None, "Audience (aud) that each token names.", Text(maximum=512, minimum=1)
    ] = None
    user_name_claim: Annotated[
        str | None, "Claim that names the user. Default: sub.", Text(maximum=128, minimum=1)
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A listener by which clients reach the brokers."""

    RULES: ClassVar = (
        Rule(
            cel=f"!(self.name in {list(RESERVED_NAMES)!r})",
            message="the operator uses this listener name itself: choose another one",
            field="name",
            holds=lambda listener: listener.name not in RESERVED_NAMES,
        ),
        Rule(
            cel=f"self.port >= {OUTSIDE_PORT_MIN} || "
            f"(self.type == 'Internal' && self.port != {INTERNAL_PORT})",
            message=f"only listeners of type Internal may have ports below {OUTSIDE_PORT_MIN}, and "
            f"{INTERNAL_PORT} is the brokers' own: choose another port",
            field="port",
            holds=lambda listener: (
                listener.port >= OUTSIDE_PORT_MIN
                or (listener.type == "Internal" and listener.port != INTERNAL_PORT)
            ),
        ),
        Rule(
            cel="self.type != 'Internal' || (!has(self.advertisedHostTemplate) && "
            "!has(self.advertisedPortTemplate))",
            message="listeners of type Internal use the names of the pods: leave out "
            "advertisedHostTemplate and advertisedPortTemplate",
            field="type",
            holds=lambda listener: (
                listener.type != "Internal"
                or not (listener.advertised_host_template or listener.advertised_port_template)
            ),
        ),
        Rule(
            cel="!has(self.authentication) || self.authentication.type == 'scram-sha-512' || "
            "(has(self.tls) && self.tls.enabled)",
            message="certificates and tokens need TLS: add tls",
            field="authentication",
            holds=lambda listener: (
                listener.authentication is None
                or listener.authentication.type == "scram-sha-512"
                or listener.is_tls
            ),
        ),
        Rule(
            cel="self.type == 'LoadBalancer' || "
            "(!has(self.loadBalancerClass) && !has(self.loadBalancerSourceRanges))",
            message="only listeners of type LoadBalancer take loadBalancerClass and "
            "loadBalancerSourceRanges: leave them out",
            field="type",
            holds=lambda listener: (
                listener.type == "LoadBalancer"
                or not (listener.load_balancer_class or listener.load_balancer_source_ranges)
            ),
        ),
        Rule(
            cel="self.type == 'NodePort' || !has(self.nodePortBase)",
            message="only listeners of type NodePort take a nodePortBase: leave it out",
            field="nodePortBase",
            holds=lambda listener: listener.type == "NodePort" or listener.node_port_base is None,
        ),
        Rule(
            cel="self.type != 'Internal' || (!has(self.ipFamilyPolicy) && !has(self.ipFamilies))",
            message="listeners of type Internal share the Service NAME-bootstrap: leave out "
            "ipFamilyPolicy and ipFamilies, because those of the LogCluster apply",
            field="type",
            holds=lambda listener: (
                listener.type != "Internal"
                or not (listener.ip_family_policy or listener.ip_families)
            ),
        ),
        *FAMILY_RULES,
    )

    name: Annotated[
        str,
        "Name of the listener, unique in the cluster. Names of Services contain it.",
        Text(
            maximum=20,
            minimum=1,
            pattern="[a-z][a-z0-9]*",
            hint="a listener's name has lower case letters and digits and begins with a letter",
        ),
    ]
    type: Annotated[
        ListenerType,
        "Internal: clients inside Kubernetes use the names of the pods. NodePort: a port of "
        "every node. LoadBalancer: an address for each broker.",
    ]
    port: Annotated[
        int,
        "Port that the brokers listen on inside their pods, unique in the cluster.",
        Whole(9092, 9199),
    ]
    tls: Annotated[ListenerTls | None, "TLS. Default: connections are not encrypted."] = None
    authentication: Annotated[
        Authentication | None,
        "How clients authenticate. Default: clients do not authenticate; all are User:ANONYMOUS.",
    ] = None
    node_port_base: Annotated[
        int | None,
        "Node port of the bootstrap Service. Broker N has the node port nodePortBase + 1 + N. "
        "Default: Kubernetes chooses.",
        Whole(1, 65_535),
    ] = None
    advertised_host_template: Annotated[
        str | None,
        "Host that a broker advertises to clients, such as broker-{brokerId}.example.com. "
        f"Placeholders: {_PLACEHOLDERS_SHOWN}. Default: {{hostIP}}, or the address of the broker's "
        "load balancer.",
        Text(
            maximum=253,
            minimum=1,
            pattern=rf"([A-Za-z0-9.:-]|\{{({_PLACEHOLDER})\}})+",
            hint=f"a host may have these placeholders, and no others: {_PLACEHOLDERS_SHOWN}",
        ),
    ] = None
    advertised_port_template: Annotated[
        str | None,
        "Port that a broker advertises to clients: a number, {nodePort}, or digits and {brokerId} "
        "or {ordinal}, such as 3{brokerId}. Default: the node port, or the listener's port.",
        Text(
            maximum=32,
            minimum=1,
            pattern=r"([0-9]|\{(brokerId|ordinal|nodePort)\})+",
            hint="a port has digits and the placeholders {brokerId}, {ordinal} and {nodePort} only",
        ),
    ] = None
    annotations: Annotated[
        Mapping[Annotated[str, Text(316)], Annotated[str, Text(1024)]],
        "Annotations of the Services of a NodePort or LoadBalancer listener, for load "
        "balancers and DNS.",
        Bound(32),
    ] = field(default_factory=dict)

    load_balancer_class: Annotated[
        str | None,
        "Class of the listener's load balancers. Kubernetes does not allow a change. Default: "
        "that of the Kubernetes cluster.",
        Text(316, 1),
    ] = None
    load_balancer_source_ranges: Annotated[
        tuple[
            Annotated[
                str,
                Text(49, 1, pattern=_SOURCE_RANGE, hint="write a range such as 10.0.0.0/8"),
            ],
            ...,
        ],
        "Addresses from which the listener's load balancers accept clients. Default: all.",
        Bound(64),
    ] = ()
    external_traffic_policy: Annotated[
        ExternalTrafficPolicy | None,
        "Local: nodes pass connections to their own pods only, and the broker sees the "
        "client's address. Cluster: nodes pass connections to all pods. Default: Cluster, as "
        "in Kubernetes.",
    ] = None

    ip_family_policy: Annotated[
        IpFamilyPolicy | None,
        "ipFamilyPolicy of the Services of a NodePort or LoadBalancer listener, as in a "
        "Service of Kubernetes. Default: that of the LogCluster, unless ipFamilies is set here.",
    ] = None
    ip_families: Annotated[
        tuple[IpFamily, ...],
        "IP families of these Services; the first one cannot be changed. Default: those of the "
        "LogCluster, unless ipFamilyPolicy is set here.",
        Bound(2),
    ] = ()

    @property
    def is_inside(self) -> bool:
        """Whether clients inside Kubernetes use it, with the pods' names."""
        return self.type == "Internal"

    @property
    def is_tls(self) -> bool:
        """Whether it uses TLS."""
        return self.tls is not None and self.tls.enabled

    @property
    def is_secured(self) -> bool:
        """Whether it uses TLS or authentication."""
        return self.is_tls or self.authentication is not None

    @property
    def is_plaintext(self) -> bool:
        """Whether its traffic can be read on the network."""
        return not self.is_tls


DEFAULT_LISTENER: Final = Listener(name="client", type="Internal", port=9092)
"""The listener of clients inside Kubernetes if a LogCluster declares none of type Internal."""
