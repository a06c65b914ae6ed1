"""The same promises with TLS everywhere, SCRAM and ACLs on: nothing lost, and as soon as in clear.

`make test-all` kills a leader; the rest is a part of the proofs: other faults, whose figures stand
beside those in clear in docs/failover.md, and an authority that is replaced under load.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from drill_settings import process_faults
from local_cluster import Cli, take_cluster_ports
from proofs import NEW_AUTHORITY, OTHER_FAULTS
from waiting import until

from fairlead_cli.client.connection import build_admin
from fairlead_cli.drill.load import DrillLoad, LoadPlan
from fairlead_cli.drill.watch import ClusterWatch
from fairlead_cli.local.control import require_cluster
from fairlead_cli.local.layout import Layout
from fairlead_cli.local.secure_files import CLUSTER
from fairlead_operator.certificates.authority import KeyPair, issue, make_authority
from fairlead_tls.peer_names import PeerName

pytestmark = [pytest.mark.slow, pytest.mark.crash]

Drill = Callable[..., Any]
STORY_S = 400.0
FAULTS = process_faults(("kill", "leader"), otherwise=OTHER_FAULTS.marks)


@pytest.mark.parametrize(("fault", "target"), FAULTS)
def test_a_process_fails_at_load(
    secure_cluster: Cli, drill: Drill, fault: str, target: str
) -> None:
    drill(secure_cluster, fault, target)


class Authority:
    """Issues certificates for the processes of a local cluster, in the place of their files."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.pair: KeyPair = make_authority("Another CA", datetime.now(UTC))

    def issue(self, path: Path, name: PeerName) -> None:
        hosts = ("127.0.0.1", "localhost")
        made = issue(
            self.pair, f"fairlead-{path.stem}", datetime.now(UTC), hosts=hosts, uris=[str(name)]
        )
        replace(path, made.certificate + made.key)


def replace(path: Path, data: bytes) -> None:
    """Put a file in the place of another at once, as whoever renews certificates has to."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(data)
    fresh.chmod(0o600)
    fresh.rename(path)


def told(layout: Layout, name: str, what: str) -> int:
    """Count what a process has said."""
    return layout.output_file(name).read_text().count(what)


def has_told(layout: Layout, name: str, what: str, count: int) -> bool:
    return told(layout, name, what) >= count


async def taken(layout: Layout, counts: dict[str, int], *, of: dict[str, int]) -> None:
    """Wait until processes have said of so many more of their listeners that they have changed."""
    for name, more in of.items():
        counts[name] = counts.get(name, 0) + more
        wanted = counts[name]
        await until(partial(has_told, layout, name, "has a new certificate", wanted))


@pytest.fixture
def own_secure_cluster(tmp_path: Path) -> Any:
    cli = Cli(tmp_path / "data", *take_cluster_ports())
    try:
        assert cli.up("--secure").code == 0
        yield cli
    finally:
        cli.close()


@NEW_AUTHORITY.mark
@pytest.mark.timeout(STORY_S + 200)
def test_an_authority_is_replaced_under_load(
    own_secure_cluster: Cli, log_in: Callable[[Cli], None]
) -> None:
    """Trusted everywhere, then all certificates are issued anew, then the old one is dropped.

    Between the steps all brokers restart one by one, so that all connections are made anew.
    """
    cli = own_secure_cluster
    layout, cluster = Layout(cli.data), require_cluster(cli.data)
    new = Authority(layout)
    old = layout.ca_certificate.read_bytes()
    counts: dict[str, int] = {}
    # A broker has two listeners whose peers it trusts; the one of clients asks for no certificate.
    everybody = {"controller": 1, **{f"broker-{i}": 2 for i in range(3)}}

    async def story(load: DrillLoad) -> None:
        await load.prepare()
        await load.start()
        try:
            await load.settle()
            new.issue(layout.controller_certificate, PeerName(CLUSTER))
            await taken(layout, counts, of={"controller": 1})
            for broker_id in range(3):
                path = layout.broker_certificate(broker_id)
                new.issue(path, PeerName(CLUSTER, broker_id))
                await taken(layout, counts, of={f"broker-{broker_id}": 3})
            await restart_all()
            replace(layout.ca_certificate, new.pair.certificate)
            await taken(layout, counts, of=everybody)
            await restart_all()
            await load.settle()
        finally:
            await load.stop()

    async def restart_all() -> None:
        for broker_id in range(3):
            restarted = await asyncio.to_thread(cli, "broker", "restart", str(broker_id))
            assert restarted.code == 0, restarted

    async def trust_both() -> None:
        # Clients are told first, too: those of this test read the file when they are made.
        replace(layout.ca_certificate, old + new.pair.certificate)
        await taken(layout, counts, of=everybody)

    asyncio.run(trust_both())
    log_in(cli)
    admin = build_admin(cluster.bootstrap)
    plan = LoadPlan(
        topic="rotation",
        bootstrap=cluster.bootstrap,
        partitions=3,
        replication_factor=3,
        rate=200,
        record_size=256,
    )
    addresses = [(broker.host, broker.port) for broker in cluster.brokers]
    load = DrillLoad(plan, admin, ClusterWatch(plan.topic, addresses))
    run(story(load))
    findings = load.read_back()
    assert findings.is_clean, findings
    assert findings.acknowledged > 0
    assert load.client_errors() == {}
    assert not told(layout, "broker-0", "keeps its certificate")


def run(work: Awaitable[None]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(STORY_S):
            await work

    asyncio.run(whole())
