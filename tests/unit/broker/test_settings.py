"""Where settings come from, which source wins, and what a wrong one is told."""

from pathlib import Path

import pytest

from fairlead_broker.directory_path import absolute_directory
from fairlead_broker.settings import Settings, build_settings, parse_listeners
from fairlead_model.configs.config_values import BROKER_CONFIGS, ConfigError
from fairlead_model.configs.setting_sources import (
    environment_name,
    read_assignments,
    read_environment,
)

NEEDED = {
    "node.id": "3",
    "log.dirs": "data",
    "fairlead.cluster.secret.file": "secret",
}


def settings(**sources: dict[str, str]) -> Settings:
    file = NEEDED | sources.get("file", {})
    return build_settings(
        file=file,
        environment=sources.get("environment", {}),
        assignments=sources.get("assignments", {}),
    )


def test_the_strongest_source_wins() -> None:
    one = {"num.partitions": "1"}
    two = {"num.partitions": "2"}
    three = {"num.partitions": "3"}
    assert settings(file=three, environment=two, assignments=one).num_partitions == 1
    assert settings(file=three, environment=two).num_partitions == 2
    assert settings(file=three).num_partitions == 3


def test_a_default_holds_where_nothing_is_set() -> None:
    assert settings().auto_create_topics_enable is False
    assert settings().offsets_topic_num_partitions == 50


def test_an_unknown_name_names_the_nearest_valid_one() -> None:
    with pytest.raises(ConfigError, match=r"did you mean num\.partitions\?"):
        settings(assignments={"num.partition": "2"})


def test_a_wrong_value_says_what_would_do() -> None:
    with pytest.raises(ConfigError, match="whole number"):
        settings(assignments={"num.partitions": "many"})


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_what_has_no_default_must_be_set(name: str) -> None:
    rest = {key: value for key, value in NEEDED.items() if key != name}
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
        build_settings(file=rest, environment={}, assignments={})


def test_the_older_name_of_the_id_will_do_unless_both_differ() -> None:
    rest = {key: value for key, value in NEEDED.items() if key != "node.id"}
    older = build_settings(file=rest, environment={}, assignments={"broker.id": "7"})
    assert older.node_id == 7
    assert settings(file={"broker.id": "3"}).node_id == 3
    with pytest.raises(ConfigError, match=r"node\.id=3 and broker\.id=4: name one id"):
        settings(file={"broker.id": "4"})


def test_controllers_are_found_in_zookeeper_or_where_it_is_said() -> None:
    assert settings().zookeeper is None
    assert settings().controller_sessions == ("ws://127.0.0.1:9191",)
    found = settings(file={"zookeeper.connect": "zk1:2181/fairlead"})
    assert found.zookeeper is not None
    assert found.zookeeper.access.connect_string == "zk1:2181/fairlead"
    assert found.controller_sessions == (), "the default is for one machine"
    told = {"fairlead.controller.sessions": "ws://a:1,ws://b:1"}
    both = settings(file={"zookeeper.connect": "zk1:2181", **told})
    assert both.controller_sessions == ("ws://a:1", "ws://b:1")


def test_log_directories_may_be_several_and_none_twice() -> None:
    assert settings(file={"log.dirs": "/a, /b"}).log_directories == ("/a", "/b")
    with pytest.raises(ConfigError, match="a folder twice"):
        settings(file={"log.dirs": "/a,/b/../a/"})
    with pytest.raises(ConfigError, match="must name a folder"):
        settings(file={"log.dirs": ","})
    with pytest.raises(ConfigError, match="names 65 folders, 64 fit"):
        settings(file={"log.dirs": ",".join(f"/{number}" for number in range(65))})


def test_relative_log_directories_begin_where_the_broker_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = settings(file={"log.dirs": "data/one, /two", "cordoned.log.dirs": "data/one"})
    assert found.log_directories == (f"{tmp_path}/data/one", "/two")
    assert found.values.static["log.dirs"] == f"{tmp_path}/data/one,/two"
    assert found.values.static["cordoned.log.dirs"] == f"{tmp_path}/data/one"


def test_log_directories_have_no_spare_slashes() -> None:
    """As the absolute paths that Kafka tells: tools name a folder by what another broker told."""
    found = settings(file={"log.dirs": "//data//one/,/two/", "cordoned.log.dirs": "/two//"})
    assert found.log_directories == ("/data/one", "/two")
    assert found.values.static["log.dirs"] == "/data/one,/two"
    assert found.values.static["cordoned.log.dirs"] == "/two"
    assert [absolute_directory(path) for path in ("/", "/a/../b/./c//", "*", "")] == [
        "/", "/a/../b/./c", "*", "",
    ]  # fmt: skip


def test_assignments_keep_equals_signs_of_the_value() -> None:
    assert read_assignments(["a=b=c"]) == {"a": "b=c"}
    with pytest.raises(ConfigError, match="NAME=VALUE"):
        read_assignments(["a"])


def test_every_setting_has_its_own_environment_variable() -> None:
    assert environment_name("log.dirs") == "FAIRLEAD_LOG_DIRS"
    assert environment_name("fairlead.http.listener") == "FAIRLEAD_HTTP_LISTENER"
    assert len({environment_name(name) for name in BROKER_CONFIGS}) == len(BROKER_CONFIGS)


def test_foreign_variables_are_ignored_and_misspelt_ones_reported() -> None:
    values, warnings = read_environment(
        {
            "FAIRLEAD_LOG_DIRS": "d",
            "FAIRLEAD_PORT_9092_TCP_ADDR": "10.0.0.1",
            "FAIRLEAD_LOG_DIR": "x",
            "HOME": "y",
        }
    )
    assert values == {"log.dirs": "d"}
    assert warnings == ["FAIRLEAD_LOG_DIR is no setting; did you mean FAIRLEAD_LOG_DIRS?"]


def test_listeners_tell_their_own_address_unless_another_is_advertised() -> None:
    client, internal = parse_listeners(
        ("CLIENT://0.0.0.0:9092", "internal://[::1]:9192"), ("CLIENT://broker.example:19092",)
    )
    assert (client.host, client.port) == ("0.0.0.0", 9092)
    assert (client.advertised_host, client.advertised_port) == ("broker.example", 19092)
    assert (internal.host, internal.advertised_host) == ("::1", "::1")
    assert internal.is_internal and not client.is_internal


@pytest.mark.parametrize(
    ("listeners", "advertised"),
    [
        (("CLIENT://0.0.0.0:9092",), ()),
        (("CLIENT//127.0.0.1:9092",), ()),
        (("CLIENT://127.0.0.1",), ()),
        (("CLIENT://127.0.0.1:70000",), ()),
        (("CLIENT://127.0.0.1:9092",), ("OTHER://h:1",)),
        (("INTERNAL://127.0.0.1:9192",), ()),
    ],
)
def test_unusable_listeners_are_refused(
    listeners: tuple[str, ...], advertised: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError):
        parse_listeners(listeners, advertised)


@pytest.mark.parametrize("name", ["listeners", "advertised.listeners"])
@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (("CLIENT://127.0.0.1:9092", "client://127.0.0.1:9093"), "two are named CLIENT"),
        (("CLIENT//127.0.0.1:9092",), "is not NAME://HOST:PORT"),
        (("CLIENT://::1:9092",), "needs brackets"),
    ],
)
def test_a_listener_that_cannot_be_meant_is_told_by_its_setting(
    name: str, texts: tuple[str, ...], why: str
) -> None:
    """The last of two with one name was all that there was of both."""
    sound = ("CLIENT://127.0.0.1:9092",)
    with pytest.raises(ConfigError, match=f"^{name}: .*{why}") as caught:
        parse_listeners(*((texts, ()) if name == "listeners" else (sound, texts)))
    assert caught.value.name == name


def test_a_topic_takes_its_defaults_from_the_broker() -> None:
    config = settings(file={"log.retention.minutes": "5"}).log_config({"segment.bytes": "2048"})
    assert config.retention_ms == 300_000
    assert config.segment_bytes == 2048


@pytest.mark.parametrize("value", ["", "/one", "/two,/one", "*"])
def test_log_directories_may_be_cordoned(value: str) -> None:
    file = {"log.dirs": "/one,/two", "cordoned.log.dirs": value}
    assert settings(file=file).values.static["cordoned.log.dirs"] == value


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("/one,/three,/four", r"must be present in log\.dirs .* Missing entries : /three, /four"),
        ("*,/one", "must not contain other values"),
    ],
)
def test_only_log_directories_are_cordoned(value: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        settings(file={"log.dirs": "/one,/two", "cordoned.log.dirs": value})
