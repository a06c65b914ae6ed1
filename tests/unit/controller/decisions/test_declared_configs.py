"""Dynamic configs of all brokers that a LogCluster declares."""

import pytest
from config_alterations import BROKER, DELETE, SET, alter, resource
from decision_world import World

from fairlead_controller.decisions.cluster_wide_configs import read_declared
from fairlead_controller.decisions.events import AlterConfigs, DeclareBrokerConfigs
from fairlead_model.cluster import CLUSTER_WIDE
from fairlead_model.configs.broker_configs import DECLARED_CONFIGS
from fairlead_model.session.calls import AlterOperation
from fairlead_model.session.refusals import RefusalCode, RefusedError

RETENTION = "log.retention.bytes"
CONNECTIONS = "max.connections"


def declare(world: World, **configs: str) -> None:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    world.do(DeclareBrokerConfigs("demo", named))


def cluster_wide(world: World) -> dict[str, str]:
    return dict(world.state.image.broker_configs.get(CLUSTER_WIDE, {}))


def outcome(world: World, event: AlterConfigs) -> tuple[int, str | None]:
    (result,) = world.do(event)["resources"]
    return result["error_code"], result["error_message"]


def test_what_is_declared_holds_and_what_people_set_besides_stays(world: World) -> None:
    world.do(alter(resource(BROKER, "", (CONNECTIONS, SET, "50"))))
    declare(world, log_retention_bytes="7", max_connections_per_ip="9")
    assert read_declared(world.state) == {RETENTION: "7", "max.connections.per.ip": "9"}
    declare(world, log_retention_bytes="8")
    assert read_declared(world.state) == {RETENTION: "8"}
    assert cluster_wide(world).keys() == {CONNECTIONS, RETENTION, DECLARED_CONFIGS}
    declare(world)
    assert cluster_wide(world) == {CONNECTIONS: "50"}


def test_the_same_declaration_again_changes_nothing(world: World) -> None:
    declare(world, log_retention_bytes="7")
    again = world.decide(DeclareBrokerConfigs("demo", {RETENTION: "7"}))
    assert again.changes == ()


def test_what_somebody_has_set_is_taken_over(world: World) -> None:
    world.do(alter(resource(BROKER, "", (RETENTION, SET, "50"))))
    declare(world, log_retention_bytes="7")
    assert cluster_wide(world)[RETENTION] == "7"


@pytest.mark.parametrize(
    ("alteration", "incremental"),
    [
        ((RETENTION, SET, "8"), True),
        ((RETENTION, SET, "8"), False),
        ((RETENTION, DELETE, None), True),
    ],
)
def test_only_the_log_cluster_changes_what_it_declares(
    world: World,
    alteration: tuple[str, AlterOperation, str] | tuple[str, AlterOperation, None],
    incremental: bool,
) -> None:
    declare(world, log_retention_bytes="7")
    event = alter(resource(BROKER, "", alteration), incremental=incremental)
    code, message = outcome(world, event)
    assert code == RefusalCode.POLICY_VIOLATION
    assert message == (
        "log.retention.bytes is declared by LogCluster 'demo'; change its spec.config instead"
    )
    assert cluster_wide(world)[RETENTION] == "7"


def test_a_full_alteration_of_other_configs_leaves_what_is_declared(world: World) -> None:
    declare(world, log_retention_bytes="7")
    same = (RETENTION, SET, "7")
    event = alter(resource(BROKER, "", (CONNECTIONS, SET, "5"), same), incremental=False)
    assert outcome(world, event) == (0, None)
    world.do(alter(resource(BROKER, "", (CONNECTIONS, SET, "6")), incremental=False))
    assert read_declared(world.state) == {RETENTION: "7"}
    assert cluster_wide(world)[CONNECTIONS] == "6"


def test_one_broker_may_still_have_a_value_of_its_own(world: World) -> None:
    declare(world, log_retention_bytes="7")
    assert outcome(world, alter(resource(BROKER, "1", (RETENTION, SET, "9")))) == (0, None)
    declare(world)
    assert dict(world.state.image.configs_of_broker(1)) == {RETENTION: "9"}


@pytest.mark.parametrize("broker", ["", "1"])
def test_nobody_else_writes_the_declaration(world: World, broker: str) -> None:
    event = alter(resource(BROKER, broker, (DECLARED_CONFIGS, SET, "demo/max.connections")))
    code, message = outcome(world, event)
    assert (code, message) == (
        RefusalCode.POLICY_VIOLATION,
        "fairlead.declared.configs is set by the operator only",
    )


@pytest.mark.parametrize(
    ("name", "value"), [(RETENTION, "x"), ("node.id", "1"), (DECLARED_CONFIGS, "a/b")]
)
def test_what_cannot_be_declared_changes_nothing(world: World, name: str, value: str) -> None:
    declare(world, log_retention_bytes="7")
    with pytest.raises(RefusedError):
        world.do(DeclareBrokerConfigs("demo", {name: value}))
    assert read_declared(world.state) == {RETENTION: "7"}


def test_a_declared_minimum_reaches_the_partitions_that_have_none_of_their_own(
    world: World,
) -> None:
    world.create("t", partitions=1, replication_factor=3)
    declare(world, min_insync_replicas="2")
    (partition,) = world.topic("t").partitions
    assert partition.min_insync_replicas == 2
    declare(world)
    (partition,) = world.topic("t").partitions
    assert partition.min_insync_replicas == 1
