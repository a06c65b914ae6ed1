"""`cordoned.log.dirs` (KIP-1066) on a broker with two log directories."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fairlead_model.cluster import BrokerConfigsChanged
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages import alter_configs
from fairlead_wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from fairlead_wire.messages.describe_log_dirs import DescribeLogDirsRequest
from fairlead_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

if TYPE_CHECKING:
    from fairlead_broker.log.directory.log_directories import LogDirectories

pytestmark = pytest.mark.parametrize("stage", [{"log.dirs": "one,two"}], indirect=True)
CORDONED = "cordoned.log.dirs"
BROKER = 4
SET, DELETE, APPEND, SUBTRACT = range(4)


def directories(stage: Any) -> LogDirectories:
    found: LogDirectories = stage.broker.log_directories
    return found


def path_of(stage: Any, name: str) -> str:
    return next(path for path in directories(stage).paths if Path(path).name == name)


def cordon(stage: Any, *names: str) -> None:
    """Have the controller tell of it, as it does of each dynamic config."""
    text = ",".join(path_of(stage, name) for name in names)
    stage.publish(BrokerConfigsChanged(str(stage.broker.node_id), {CORDONED: text}))


def homes(stage: Any) -> dict[str, str]:
    return {
        topic: Path(directories(stage).home(partition.log).path).name
        for (topic, _), partition in stage.broker.partitions.items()
    }


def ask(stage: Any, name: str, topic: str) -> int:
    target = AlterReplicaLogDir(path_of(stage, name), [AlterReplicaLogDirTopic(topic, [0])])
    ((result,),) = (
        [*each.partitions] for each in stage.ask(AlterReplicaLogDirsRequest([target]), 2).results
    )
    code: int = result.error_code
    return code


def flags(stage: Any, version: int = 5) -> dict[str, bool]:
    answer = stage.ask(DescribeLogDirsRequest(topics=None), version)
    return {Path(each.log_dir).name: each.is_cordoned for each in answer.results}


def test_an_entry_may_be_relative_to_where_the_broker_was_started(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Path(path_of(stage, "one"))
    monkeypatch.chdir(one.parent)
    assert alter(stage, "1", "one") == (0, "")
    stage.publish(BrokerConfigsChanged(str(stage.broker.node_id), {CORDONED: "one"}))
    assert flags(stage) == {"one": True, "two": False}


def test_new_replicas_go_elsewhere_until_that_is_taken_back(stage: Any) -> None:
    cordon(stage, "one")
    for topic in "abc":
        stage.topic(topic)
    assert homes(stage) == {"a": "two", "b": "two", "c": "two"}
    assert not directories(stage).is_cordoned
    stage.publish(BrokerConfigsChanged(str(stage.broker.node_id), {}))
    stage.topic("d")
    assert homes(stage)["d"] == "one"


def test_describe_log_dirs_tells_since_version_5(stage: Any) -> None:
    assert flags(stage) == {"one": False, "two": False}
    cordon(stage, "two")
    assert flags(stage) == {"one": False, "two": True}
    assert flags(stage, 4) == {"one": False, "two": False}


def test_no_replica_moves_to_a_cordoned_directory(stage: Any) -> None:
    stage.topic("a")
    cordon(stage, "two")
    assert ask(stage, "two", "a") == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert ask(stage, "two", "not-here-yet") == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    cordon(stage)
    assert ask(stage, "two", "a") == ErrorCode.NONE
    assert len(list(directories(stage).moves)) == 1


def test_a_move_there_is_called_back_and_one_away_goes_on(stage: Any) -> None:
    stage.topic("a")
    stage.topic("b")
    assert homes(stage) == {"a": "one", "b": "two"}
    assert ask(stage, "two", "a") == ErrorCode.NONE
    assert ask(stage, "one", "b") == ErrorCode.NONE
    cordon(stage, "two")
    assert set(directories(stage).moves.under_way) == {("b", 0)}


def test_a_move_is_called_back_into_a_cordoned_directory(stage: Any) -> None:
    stage.topic("a")
    cordon(stage, "one")
    assert ask(stage, "two", "a") == ErrorCode.NONE
    assert ask(stage, "one", "a") == ErrorCode.NONE
    assert not directories(stage).moves.under_way


def test_a_directory_that_was_wanted_before_is_not_taken_once_cordoned(stage: Any) -> None:
    assert ask(stage, "two", "a") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cordon(stage, "two")
    stage.topic("a")
    assert homes(stage) == {"a": "one"}


def test_where_all_are_cordoned_what_the_controller_gives_still_has_a_place(stage: Any) -> None:
    cordon(stage, "one", "two")
    assert directories(stage).is_cordoned
    stage.topic("a")
    assert homes(stage) == {"a": "one"}


def test_one_left_that_has_failed_makes_the_broker_cordoned(stage: Any) -> None:
    cordon(stage, "one")
    directories(stage).fail(directories(stage).directories[1], OSError("gone"))
    assert directories(stage).is_cordoned


def test_an_asterisk_is_all_and_what_is_no_directory_is_passed_over(
    stage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    directories(stage).cordon(["*"])
    assert directories(stage).cordoned == set(directories(stage).paths)
    directories(stage).cordon(["/taken/out", path_of(stage, "one")])
    assert directories(stage).cordoned == {path_of(stage, "one")}
    directories(stage).cordon(["/taken/out"])
    warnings = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert warnings == ["cordoned.log.dirs names what is not in log.dirs: /taken/out"]


def alter(stage: Any, broker: str, value: str | None, operation: int = SET) -> tuple[int, str]:
    stage.controller.script["alter_configs"] = lambda body: {
        "resources": [
            {
                "resource_type": each["resource_type"],
                "name": each["name"],
                "error_code": 0,
                "error_message": None,
            }
            for each in body["resources"]
        ]
    }
    config = AlterableConfig(CORDONED, operation, value)
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER, broker, [config])])
    (answer,) = stage.ask(request, 1).responses
    return answer.error_code, answer.error_message or ""


@pytest.mark.parametrize("operation", [SET, APPEND])
def test_only_what_is_in_log_dirs_can_be_cordoned(stage: Any, operation: int) -> None:
    """As Kafka 4.3.1 says it."""
    one, two = directories(stage).paths
    for value in (one, f"{two},{one}", "*"):
        assert alter(stage, "1", value, operation) == (0, "")
    code, why = alter(stage, "1", f"{one},/no,/where", operation)
    assert code == ErrorCode.INVALID_REQUEST
    assert why == (
        "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries "
        ": /no, /where"
    )
    code, why = alter(stage, "1", f"*,{one}", operation)
    assert (code, "must not contain other values" in why) == (ErrorCode.INVALID_REQUEST, True)
    assert len(stage.controller.calls) == 3


@pytest.mark.parametrize(("operation", "value"), [(SUBTRACT, "/taken/out"), (DELETE, None)])
def test_what_was_taken_out_can_be_uncordoned(stage: Any, operation: int, value: Any) -> None:
    assert alter(stage, "1", value, operation) == (0, "")


def test_of_another_broker_only_that_one_knows_the_directories(stage: Any) -> None:
    code, why = alter(stage, "2", directories(stage).paths[0])
    assert code == ErrorCode.INVALID_REQUEST
    assert why.startswith("Unexpected broker id, expected 1, but received '2'")
    assert stage.controller.calls == []
    for value in ("*", ""):
        assert alter(stage, "2", value) == (0, "")
    assert alter(stage, "2", None, DELETE) == (0, "")


def test_a_full_set_of_configs_is_checked_too(stage: Any) -> None:
    config = alter_configs.AlterableConfig(CORDONED, "/no/where")
    request = alter_configs.AlterConfigsRequest(
        [alter_configs.AlterConfigsResource(BROKER, "1", [config])]
    )
    (answer,) = stage.ask(request, 2).responses
    assert answer.error_code == ErrorCode.INVALID_REQUEST
