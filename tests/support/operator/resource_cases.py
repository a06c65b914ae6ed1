"""Valid and invalid manifests of every kind, with the answers of the API server and of our readers.

Both accept or refuse the same manifests, except for marked cases: only readers know the names of
settings, and `fairlead up` accepts manifests without a cluster.
"""

from dataclasses import dataclass

from resource_manifests import (
    Manifest,
    acl,
    cluster,
    drill,
    group,
    listener,
    pool,
    reset,
    topic,
    user,
    without,
)


@dataclass(frozen=True)
class Case:
    title: str
    manifest: Manifest
    api_says: str = ""
    """Part of the API server's refusal; empty where it takes the manifest."""
    reader_says: str = ""
    """Part of the reader's finding; empty where it takes the manifest."""

    def __str__(self) -> str:
        return self.title


def both(title: str, manifest: Manifest, says: str) -> Case:
    return Case(title, manifest, says, says)


CLUSTERS = (
    Case("a bare cluster", cluster()),
    Case(
        "a full cluster",
        cluster(
            image="registry.example.com/fairlead:1",
            imagePullPolicy="IfNotPresent",
            imagePullSecrets=["registry"],
            config={
                "min.insync.replicas": 2,
                "auto.create.topics.enable": False,
                "log.cleaner.min.cleanable.ratio": 0.5,
                "compression.type": "producer",
                "fetch.max.bytes": None,
            },
            defaults={"partitions": 6, "replicationFactor": 3},
            listeners=[
                listener(nodePortBase=31090, annotations={"a": "b"}),
                listener(
                    name="public",
                    type="LoadBalancer",
                    port=9096,
                    advertisedHostTemplate="broker-{brokerId}.example.com",
                    advertisedPortTemplate="3{brokerId}",
                ),
            ],
            reclaimPolicy="Delete",
            pauseReconciliation=True,
            drills={"enabled": False},
            networkPolicy={"enabled": False},
        ),
    ),
    Case("null is absent", cluster(image=None, defaults=None, listeners=None, drills={})),
    both("a cluster's name with a dot", cluster("de.mo"), "becomes part of the names of Services"),
    both("a long cluster's name", cluster("d" * 33), "becomes part of the names of Services"),
    Case(
        "a misspelt field",
        cluster(listener=[]),
        'unknown field "spec.listener"',
        "spec.listener: unknown field; did you mean listeners?",
    ),
    Case(
        "a misspelt spec",
        {k: v for k, v in cluster().items() if k != "spec"} | {"specs": {}},
        'unknown field "specs"',
        "specs: unknown field; did you mean spec?",
    ),
    Case(
        "a misspelt field of a listener",
        cluster(listeners=[listener(ports=1)]),
        'unknown field "spec.listeners[0].ports"',
        "spec.listeners[0].ports: unknown field; did you mean port?",
    ),
    Case("TLS between brokers", cluster(interBroker={"tls": True})),
    Case(
        "a listener of clients that is called as that of the controller",
        cluster(listeners=[listener(name="controller")]),
    ),
    both(
        "a listener of clients in the place of that of the controller",
        cluster(listeners=[listener(name="controller")], interBroker={"tls": True}),
        "with interBroker.tls, CONTROLLER is the controller's listener",
    ),
    both(
        "listeners of one name",
        cluster(listeners=[listener(), listener(port=9096)]),
        "two listeners have the same name: give each one its own",
    ),
    both(
        "listeners of one port",
        cluster(listeners=[listener(), listener(name="other")]),
        "two listeners have the same port: give each one its own",
    ),
    *(
        Case(
            f"a listener on port {port}",
            cluster(listeners=[listener(port=port)]),
            "spec.listeners[0].port",
            "spec.listeners[0].port: expected a whole number of 9092 to 9199",
        )
        for port in (8080, 9091, 9200)
    ),
    *(
        both(
            f"a listener outside on port {port}",
            cluster(listeners=[listener(port=port)]),
            "only listeners of type Internal may have ports below 9095",
        )
        for port in (9092, 9093, 9094)
    ),
    Case(
        "a secured cluster",
        cluster(
            authorization={"superUsers": ["admin"]},
            certificateAuthority={"overlapDays": 1},
            listeners=[
                {"name": "plain", "type": "Internal", "port": 9092},
                listener(
                    tls={"alternativeNames": ["log.example.com"]},
                    authentication={"type": "scram-sha-512"},
                ),
                {
                    "name": "certs",
                    "type": "Internal",
                    "port": 9093,
                    "tls": {"issuerRef": {"name": "company", "kind": "ClusterIssuer"}},
                    "authentication": {"type": "tls"},
                },
                {
                    "name": "tokens",
                    "type": "Internal",
                    "port": 9096,
                    "tls": {"certificate": {"secretName": "given"}},
                    "authentication": {
                        "type": "oauth",
                        "jwksEndpointUri": "https://id.example.com/jwks",
                        "validIssuerUri": "https://id.example.com",
                        "audience": "kafka",
                    },
                },
            ],
        ),
    ),
    both(
        "the brokers' own port",
        cluster(listeners=[{"name": "own", "type": "Internal", "port": 9094}]),
        "9094 is the brokers' own",
    ),
    *(
        both(
            f"a listener of the operator's name {name}",
            cluster(listeners=[{"name": name, "type": "Internal", "port": 9092}]),
            "the operator uses this listener name itself: choose another one",
        )
        for name in ("client", "internal", "operator")
    ),
    both(
        "a template for a listener inside",
        cluster(
            listeners=[
                {
                    "name": "inside",
                    "type": "Internal",
                    "port": 9092,
                    "advertisedHostTemplate": "a.example.com",
                }
            ]
        ),
        "listeners of type Internal use the names of the pods: leave out advertisedHostTemplate",
    ),
    both(
        "certificates of clients without TLS",
        cluster(listeners=[listener(authentication={"type": "tls"})]),
        "certificates and tokens need TLS: add tls",
    ),
    both(
        "certificates of clients with TLS switched off",
        cluster(listeners=[listener(tls={"enabled": False}, authentication={"type": "tls"})]),
        "certificates and tokens need TLS: add tls",
    ),
    both(
        "passwords by HTTP without TLS",
        cluster(rest={"enabled": True, "authentication": {"type": "scram-sha-512"}}),
        "passwords, certificates and tokens need TLS: add tls",
    ),
    both(
        "tokens that nobody can check",
        cluster(listeners=[listener(tls={}, authentication={"type": "oauth"})]),
        "oauth needs jwksEndpointUri, validIssuerUri and audience: set all three",
    ),
    both(
        "an audience for passwords",
        cluster(
            listeners=[listener(authentication={"type": "scram-sha-512", "audience": "kafka"})]
        ),
        "are for oauth: leave them out",
    ),
    both(
        "a certificate from two places",
        cluster(
            listeners=[
                listener(
                    tls={"certificate": {"secretName": "given"}, "issuerRef": {"name": "company"}}
                )
            ]
        ),
        "a certificate comes from a Secret or from an issuer: leave one out",
    ),
    both(
        "two super users in one",
        cluster(authorization={"superUsers": ["a;User:b"]}),
        "a user's name has no semicolon",
    ),
    both(
        "a listener's name in upper case",
        cluster(listeners=[listener(name="OUTSIDE")]),
        "a listener's name has lower case letters and digits and begins with a letter",
    ),
    both(
        "a node port for a load balancer",
        cluster(listeners=[listener(type="LoadBalancer", nodePortBase=31000)]),
        "only listeners of type NodePort take a nodePortBase: leave it out",
    ),
    both(
        "an unknown placeholder",
        cluster(listeners=[listener(advertisedHostTemplate="{broker}.example.com")]),
        "a host may have these placeholders, and no others: {brokerId} {ordinal} {pod}",
    ),
    both(
        "a host in a port",
        cluster(listeners=[listener(advertisedPortTemplate="{hostIP}")]),
        "a port has digits and the placeholders {brokerId}, {ordinal} and {nodePort} only",
    ),
    Case(
        "nine listeners",
        cluster(listeners=[listener(name=f"l{n}", port=9100 + n) for n in range(9)]),
        "must have at most 8 items",
        "spec.listeners: has 9 entries, at most 8 fit",
    ),
    Case(
        "an unknown reclaim policy",
        cluster(reclaimPolicy="Keep"),
        'supported values: "Retain", "Delete"',
        "spec.reclaimPolicy: expected Retain or Delete, got 'Keep'",
    ),
    Case("a text for a flag", cluster(drills={"enabled": "yes"}), "boolean", "expected true or"),
    Case("a setting that is a list", cluster(config={"log.dirs": [1]}), "log.dirs", "expected a"),
    Case("a setting that is an empty list", cluster(config={"a": []}), "spec.config.a", "got []"),
    Case("a setting that is a mapping", cluster(config={"a": {"b": 1}}), "spec.config.a", "got {"),
    Case("a setting that is empty", cluster(config={"a": {}}), "spec.config.a", "got {}"),
    Case(
        "a setting of 4,097 characters",
        cluster(config={"compression.type": "x" * 4097}),
        "spec.config.compression.type",
        "has 4097 characters, at most 4096 fit",
    ),
    Case("an unknown setting", cluster(config={"log.dir": "x"}), reader_says="did you mean"),
    Case(
        "a wrong setting", cluster(config={"max.connections": "x"}), reader_says="spec.config[max"
    ),
    Case(
        "too short a session",
        cluster(config={"broker.session.timeout.ms": 10}),
        reader_says="10 is below the minimum 500",
    ),
    Case(
        "a setting of the operator",
        cluster(config={"node.id": 3}),
        reader_says="node.id cannot be set here: use spec.idBase of the BrokerPool",
    ),
)

POOLS = (
    Case(
        "a setting that the controller reads",
        pool(config={"broker.session.timeout.ms": 9000}),
        reader_says="cannot be set here: the controller reads it in spec.config",
    ),
    Case("a bare pool", pool()),
    Case("a pool of none", pool(replicas=0)),
    Case(
        "a full pool",
        pool(
            idBase=100,
            storage={"size": "1.5Ti", "storageClassName": "fast"},
            resources={"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
            rack="a",
            config={"max.connections": 100},
            template={
                "labels": {"team": "data"},
                "annotations": {"a": "b"},
                "nodeSelector": {"disk": "ssd"},
                "tolerations": [{"key": "data", "operator": "Exists"}],
                "affinity": {"nodeAffinity": {"anything": [{"deep": True}]}},
                "topologySpreadConstraints": [{"maxSkew": 1}],
                "priorityClassName": "high",
                "env": [
                    {"name": "TZ", "value": "UTC"},
                    {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                ],
            },
        ),
    ),
    Case(
        "a pool without a cluster",
        without(pool(), "clusterName"),
        "spec.clusterName: Required value",
        "spec.clusterName: this field is needed",
    ),
    Case(
        "a pool without storage",
        without(pool(), "storage"),
        "spec.storage: Required value",
        "spec.storage: this field is needed",
    ),
    both("a cluster in upper case", pool(clusterName="Demo"), "a LogCluster's name has lower case"),
    both("no size", pool(storage={"size": "0"}), "a volume needs a size above 0"),
    Case(
        "several volumes",
        pool(
            storage={
                "storageClassName": "fast",
                "volumes": [
                    {"id": 0, "size": "10Gi"},
                    {"id": 7, "size": "1Ti", "storageClassName": "slow", "annotations": {"a": "b"}},
                ],
            },
            template={"env": [{"name": "TZ", "value": "UTC"}]},
        ),
    ),
    Case("a size and no volumes", pool(storage={"size": "10Gi", "volumes": []})),
    both("neither size nor volumes", pool(storage={}), "a pool has either size, for one volume"),
    both(
        "a size and volumes",
        pool(storage={"size": "10Gi", "volumes": [{"id": 0, "size": "10Gi"}]}),
        "a pool has either size, for one volume of each broker, or volumes",
    ),
    both(
        "no first volume",
        pool(storage={"volumes": [{"id": 1, "size": "10Gi"}]}),
        "volumes need one with the id 0",
    ),
    both(
        "a volume of nothing",
        pool(storage={"volumes": [{"id": 0, "size": "0"}]}),
        "a volume needs a size above 0",
    ),
    Case(
        "one id for two volumes",
        pool(storage={"volumes": [{"id": 0, "size": "1Gi"}, {"id": 0, "size": "2Gi"}]}),
        "Duplicate value",
        "two entries have the id 0",
    ),
    both(
        "log directories by a variable",
        pool(
            storage={"volumes": [{"id": 0, "size": "1Gi"}]},
            template={"env": [{"name": "FAIRLEAD_LOG_DIRS", "value": "/a"}]},
        ),
        "with storage.volumes the operator sets FAIRLEAD_LOG_DIRS itself",
    ),
    Case(
        "log directories by a variable of one volume",
        pool(template={"env": [{"name": "FAIRLEAD_LOG_DIRS", "value": "/a"}]}),
    ),
    both("a size in words", pool(storage={"size": "big"}), "write a size such as 500Mi or 100Gi"),
    both("ids beyond the end", pool(idBase=999_998), "idBase + replicas must not be above 1000000"),
    both("long names", pool("p" * 48), "metadata.name and clusterName together name the pods"),
    Case(
        "too many brokers",
        pool(replicas=1001),
        "should be less than or equal to 1000",
        "spec.replicas: expected a whole number of 0 to 1000, got 1001",
    ),
    both(
        "a variable of the operator",
        pool(template={"env": [{"name": "POD_IP", "value": "x"}]}),
        "the operator sets this variable itself: leave it out",
    ),
    both(
        "a variable with two values",
        pool(template={"env": [{"name": "A", "value": "x", "valueFrom": {"a": {}}}]}),
        "a variable has a value or a valueFrom, not both",
    ),
    Case(
        "a variable twice",
        pool(template={"env": [{"name": "A"}, {"name": "A"}]}),
        "Duplicate value",
        "two entries have the name A",
    ),
    Case(
        "no amount of memory",
        pool(resources={"limits": {"memory": "much"}}),
        "spec.resources.limits.memory",
        "spec.resources.limits[memory]: 'much' is no amount: write an amount such as 500m",
    ),
)

TOPICS = (
    Case("a bare topic", topic()),
    Case(
        "a full topic",
        topic(
            topicName="shop.Orders_1",
            partitions=10_000,
            replicationFactor=32_767,
            config={"retention.ms": -1, "preallocate": True, "max.message.bytes": None},
            reclaimPolicy="Delete",
            deletionProtection=True,
        ),
    ),
    Case(
        "a topic of the only cluster there is",
        without(topic(), "clusterName"),
    ),
    Case(
        "no partitions", topic(partitions=0), "should be greater than or equal to 1", "partitions"
    ),
    Case("many partitions", topic(partitions=10_001), "less than or equal to 10000", "partitions"),
    Case("many replicas", topic(replicationFactor=32_768), "equal to 32767", "replicationFactor"),
    Case(
        "a topic's name with a space",
        topic(topicName="a b"),
        "a topic's name has letters, digits, '.', '_' and '-' only",
        "may only hold",
    ),
    Case("two dots", topic(topicName=".."), "belongs to the cluster itself", "cannot be '..'"),
    Case("a long topic's name", topic(topicName="a" * 250), "Too long", "at most 249 fit"),
    Case("a long name", topic("a" * 250), "a topic's name has at most 249", "at most 249 fit"),
    Case("a long name with a topic's name", topic("a" * 250, topicName="short")),
    Case(
        "an internal topic",
        topic(topicName="__consumer_offsets"),
        "this name belongs to the cluster itself: choose another topicName",
        "'__consumer_offsets' belongs to the cluster itself",
    ),
    Case("an unknown setting of a topic", topic(config={"retention": 1}), reader_says="retention"),
)

DRILLS = (
    Case("a bare drill", drill()),
    Case(
        "a full drill",
        drill(
            target={"type": "Follower", "topic": "orders", "partition": 2},
            fault={"type": "Pause", "durationSeconds": 20},
            workload={
                "partitions": 3,
                "replicationFactor": 2,
                "recordsPerSecond": 100,
                "recordSize": 1024,
                "steadySeconds": 5,
            },
            limits={"recoveryMs": 500, "clientErrors": 0},
            runs=30,
            suspend=True,
        ),
    ),
    Case("a broker", drill(target={"type": "Broker", "brokerId": 0})),
    Case(
        "a drill of no cluster",
        without(drill(), "clusterName"),
        "spec.clusterName: Required value",
        "spec.clusterName: this field is needed",
    ),
    Case(
        "a drill without a fault",
        without(drill(), "fault"),
        "spec.fault: Required value",
        "spec.fault: this field is needed",
    ),
    Case(
        "an unknown fault",
        drill(fault={"type": "Melt"}),
        'supported values: "Kill", "Delete", "Pause"',
        "spec.fault.type: expected Kill or Delete or Pause or Slow or Isolate or DiskFull or "
        "RollingRestart, got 'Melt'",
    ),
    both(
        "a slow controller",
        drill(target={"type": "Controller"}, fault={"type": "Slow"}),
        "only brokers can be Slow, Isolate or DiskFull: for the controller set Kill, Delete or "
        "Pause",
    ),
    both(
        "a controller whose disk is full",
        drill(target={"type": "Controller"}, fault={"type": "DiskFull"}),
        "only brokers can be Slow, Isolate or DiskFull: for the controller set Kill, Delete or "
        "Pause",
    ),
    both(
        "a rolling restart of one broker",
        drill(fault={"type": "RollingRestart"}),
        "the target Cluster and the fault RollingRestart go together",
    ),
    both(
        "a time zone without a schedule",
        drill(timeZone="Europe/Berlin"),
        "timeZone needs a schedule: set schedule, too",
    ),
    both(
        "a zone without its name",
        drill(target={"type": "Zone"}),
        "the target Zone needs the zone's name, and no other target takes one",
    ),
    both(
        "a leader with a node",
        drill(target={"type": "Leader", "node": "n"}),
        "the target Node needs the node's name, and no other target takes one",
    ),
    both(
        "a cut of something that is killed",
        drill(fault={"type": "Kill", "cut": "All"}),
        "only the fault Isolate cuts: leave cut out, or set type to Isolate",
    ),
    both(
        "a broker without its id",
        drill(target={"type": "Broker"}),
        "the target Broker needs a brokerId, and no other target takes one",
    ),
    both(
        "a leader with a broker's id",
        drill(target={"type": "Leader", "brokerId": 1}),
        "the target Broker needs a brokerId, and no other target takes one",
    ),
    both(
        "the controller of a topic",
        drill(target={"type": "Controller", "topic": "orders"}),
        "only the targets Leader and Follower take a topic",
    ),
    both(
        "a partition of no topic",
        drill(target={"type": "Leader", "partition": 1}),
        "a partition needs the topic that it belongs to: set topic too",
    ),
)

GROUPS = (
    Case("a bare group", group()),
    Case("a group of the only cluster there is", without(group(), "clusterName")),
    Case(
        "a full group",
        group(
            groupId="Shop / Billing",
            refreshSeconds=3600,
            offsetReset=reset(
                "Timestamp",
                timestamp="2026-11-20T06:00:00+01:00",
                topics=[{"name": "shop.Orders", "partitions": [0, 9_999]}, {"name": "_b"}],
            ),
        ),
    ),
    Case("the earliest offset", group(offsetReset=reset())),
    Case("an offset", group(offsetReset=reset("Offset", offset=0))),
    Case("some records back", group(offsetReset=reset("ShiftBy", shiftBy=-1_000))),
    Case(
        "a group that is looked at all the time",
        group(refreshSeconds=1),
        "greater than or equal to 5",
        "spec.refreshSeconds: expected a whole number of 5 to 3600",
    ),
    Case(
        "an unknown target",
        group(offsetReset=reset("Middle")),
        'supported values: "Earliest"',
        "spec.offsetReset.to: expected Earliest or Latest",
    ),
    Case(
        "a reset without an id",
        group(offsetReset={"to": "Latest"}),
        "spec.offsetReset.id: Required value",
        "spec.offsetReset.id: this field is needed",
    ),
    both("an id with a space", group(offsetReset=reset() | {"id": "a b"}), "an id has letters"),
    both(
        "an offset that is not named",
        group(offsetReset=reset("Offset")),
        "the target Offset needs the field offset",
    ),
    both(
        "an offset for nothing",
        group(offsetReset=reset("Latest", offset=1)),
        "the target Offset needs the field offset, and no other target takes it",
    ),
    both(
        "a shift for nothing",
        group(offsetReset=reset(shiftBy=1)),
        "the target ShiftBy needs the field shiftBy",
    ),
    Case(
        "a time without its zone",
        group(offsetReset=reset("Timestamp", timestamp="2026-11-20T06:00:00")),
        "must be of type date-time",
        "write a time since 1970 with its time zone",
    ),
    both(
        "a time before there were times",
        group(offsetReset=reset("Timestamp", timestamp="1969-11-20T06:00:00Z")),
        "write a time since 1970 with its time zone",
    ),
    Case(
        "a topic twice",
        group(offsetReset=reset(topics=[{"name": "a"}, {"name": "a"}])),
        "Duplicate value",
        "two entries have the name a",
    ),
)

_SOURCE = {"valueFrom": {"secretKeyRef": {"name": "chosen", "key": "word"}}}

USERS = (
    both("a token without a subject", user(login="oauth"), "oauth needs it"),
    both(
        "a subject without a token",
        user(authentication={"type": "tls", "subject": "x"}),
        "oauth needs it, and no other type takes it",
    ),
    both(
        "everybody",
        user(authentication={"type": "oauth", "subject": "*"}),
        "this name stands for everybody",
    ),
    both(
        "nobody",
        user(authentication={"type": "oauth", "subject": "ANONYMOUS"}),
        "this name stands for everybody",
    ),
    both(
        "a subject of two lines",
        user(authentication={"type": "oauth", "subject": "a\nb"}),
        "a name is one line",
    ),
    both(
        "a password beside a certificate",
        user(authentication={"type": "tls", "password": _SOURCE}),
        "only scram-sha-512 has a password",
    ),
    Case(
        "an unknown login",
        user(login="kerberos"),
        'supported values: "scram-sha-512", "tls", "oauth"',
        "spec.authentication.type: expected scram-sha-512 or tls or oauth",
    ),
    Case(
        "no login",
        without(user(), "authentication"),
        "spec.authentication: Required value",
        "spec.authentication: this field is needed",
    ),
    both("a rule for no name", user(acls=[acl()]), "name the topic, group or transactional id"),
    both(
        "a cluster with a name",
        user(acls=[acl("cluster", "Describe", name="demo")]),
        "the cluster has no name",
    ),
    both(
        "a prefix of the cluster",
        user(acls=[acl("cluster", "Describe", patternType="prefixed")]),
        "the cluster has no prefix",
    ),
    Case(
        "an unknown operation",
        user(acls=[acl("topic", "Fly", name="x")]),
        'supported values: "All"',
        "spec.acls[0].operations[0]: expected All or Read",
    ),
    both(
        "a long name in a certificate",
        user("a" * 65, "tls"),
        "the common name of a certificate has at most 64 characters",
    ),
)

CASES = (*CLUSTERS, *POOLS, *TOPICS, *USERS, *GROUPS, *DRILLS)
