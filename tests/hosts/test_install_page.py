"""The commands of docs/install_hosts.md, run on three hosts in network namespaces.

Only addresses, numbers of hosts and ZooKeeper's servers are replaced. The page installs the program
from a package registry; the test uses that of this checkout instead.
"""

import json
import re
import shutil
from pathlib import Path

from host_cluster import EXAMPLES
from host_shell import HostShell
from plain_hosts import Switch, fairlead
from proofs import INSTALL_PAGE
from waiting import wait_until
from zookeeper_ensemble import running_ensemble

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "install_hosts.md"
BLOCK = re.compile(r"<!-- tested: host (?P<where>\w+) -->\n```\n(?P<text>.*?)```", re.DOTALL)
SERVERS = re.compile(r"10\.0\.0\.1\d:2181(,10\.0\.0\.1\d:2181)*")


def blocks(where: str) -> list[str]:
    return [match["text"] for match in BLOCK.finditer(PAGE.read_text()) if match["where"] == where]


@INSTALL_PAGE.mark
def test_the_page_leads_from_nothing_to_a_record_and_through_a_rolling_restart(
    tmp_path: Path,
) -> None:
    settings, start, restart = blocks("every")
    secret, first_record, export = blocks("first")
    with (
        Switch(tmp_path, hosts=3) as switch,
        running_ensemble(
            tmp_path / "zookeeper", servers=1, settings={"clientPortAddress": "0.0.0.0"}
        ) as ensemble,
    ):
        server = f"{switch.gateway}:{ensemble.servers[0].client_port}"

        def written(text: str, number: int) -> str:
            text = SERVERS.sub(server, text).replace("N=1\n", f"N={number}\n")
            return text.replace("10.0.0.", f"{switch.subnet}.")

        shells = [HostShell(host) for host in switch.hosts]
        try:
            for shell in shells:
                shell.install(Path(fairlead()))
                shutil.copytree(EXAMPLES, shell.home / "hosts")
            first = shells[0]
            first.run(secret)
            shared = first.read("/etc/fairlead/secret")
            for shell in shells[1:]:
                shell.run(
                    "install -d -m 0750 -g fairlead /etc/fairlead\n"
                    "install -m 0640 -g fairlead /dev/null /etc/fairlead/secret\n"
                    f"echo {shared.strip()} > /etc/fairlead/secret\n"
                )
            for number, shell in enumerate(shells, start=1):
                shell.run(written(settings, number))
            for shell in shells:
                shell.run(start)

            def is_served() -> bool:
                logs = [s.read("/var/lib/units/fairlead-broker.log") for s in shells]
                return all("\nready node.id=" in f"\n{log}" for log in logs)

            wait_until(is_served, lambda: last_words(shells), deadline_s=60)
            assert first.run(written(first_record, 1)).endswith("hello\n")
            for shell in shells:
                shell.run(written(restart, 1))
            topics = first.run(written("fairlead topic list -o json --bootstrap 10.0.0.1:9092", 1))
            assert all(topic["underReplicated"] == 0 for topic in json.loads(topics))
            first.run(written(export, 1))
            document = json.loads((first.home / "metadata.json").read_text())
            assert "orders" in {topic["header"]["name"] for topic in document["topics"]}
        finally:
            for shell in shells:
                shell.close()


def last_words(shells: list[HostShell]) -> str:
    return "\n".join(shell.run("tail -n 20 /var/lib/units/*.log") for shell in shells)
