"""What a cluster says of brokers that come and go."""

from collections.abc import Callable
from typing import Any

import pytest

from fairlead_spark.client_settings import ClientSettings
from fairlead_spark.cluster import CONNECTION_ERRORS, Cluster


@pytest.mark.parametrize(
    "ask",
    [
        lambda cluster: cluster.call(7, None, 1),
        lambda cluster: cluster.connection(7),
        lambda cluster: cluster.produce_connection(7),
    ],
)
def test_a_broker_that_left_while_leaders_were_looked_up_is_trouble_that_passes(
    ask: Callable[[Cluster], Any],
) -> None:
    """Another topic was looked up behind its own, and the dead broker is not listed any more."""
    with pytest.raises(CONNECTION_ERRORS, match="broker 7 is no longer in the cluster"):
        ask(Cluster(ClientSettings("a:1")))
