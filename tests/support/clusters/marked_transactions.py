"""Wait until readers see how transactions have ended.

A transaction is decided when its EndTxn is answered; its markers follow, and with them what
`read_committed` readers see (KIP-98). A test that reads once after a commit waits for them here.
"""

from waiting import wait_until

from fairlead_spark.client_settings import ClientSettings
from fairlead_spark.cluster import Cluster
from fairlead_wire.messages.list_transactions import ListTransactionsRequest

DECIDED = ["PrepareCommit", "PrepareAbort"]
"""States of transactions that are decided but not yet marked in every partition."""


def wait_until_marked(bootstrap: str) -> None:
    """Wait until every decided transaction of the cluster has its markers; some may be open."""
    cluster = Cluster(ClientSettings(bootstrap))

    def is_marked() -> bool:
        replies = [
            cluster.call(node_id, ListTransactionsRequest(state_filters=DECIDED), 0)
            for node_id in cluster.read_node_ids()
        ]
        return not any(reply.error_code or reply.transaction_states for reply in replies)

    try:
        wait_until(is_marked, "a transaction that is decided stays without markers")
    finally:
        cluster.close()
