"""What controller.properties means, and what a wrong one is told."""

import pytest

from fairlead_controller.zookeeper.main import main
from fairlead_controller.zookeeper.properties import (
    ControllerProperties,
    read_controller_properties,
)
from fairlead_model.configs.config_values import ConfigError
from fairlead_model.configs.setting_sources import merge_settings

NEEDED = {
    "node.id": "10001",
    "log.dirs": "/var/lib/fairlead/controller",
    "zookeeper.connect": "zk1:2181,zk2/fairlead",
    "fairlead.cluster.secret.file": "/etc/fairlead/secret",
}


def read(**settings: str) -> ControllerProperties:
    given = {name.replace("_", "."): text for name, text in settings.items()}
    merged = merge_settings(file=NEEDED, environment={}, assignments=given)
    return read_controller_properties(merged)


def test_nothing_is_bound_but_this_machine_unless_it_is_said() -> None:
    properties = read()
    assert (properties.host, properties.session_port) == ("127.0.0.1", 9191)
    assert properties.advertised_host == "127.0.0.1"
    assert (properties.http_host, properties.http_port) == ("127.0.0.1", 8170)


def test_a_controller_of_several_hosts_says_where_it_is() -> None:
    properties = read(
        listeners="CONTROLLER://0.0.0.0:9191",
        advertised_listeners="CONTROLLER://host1.example:9191",
        fairlead_http_listener="10.0.0.1:8170",
    )
    assert (properties.host, properties.session_port) == ("0.0.0.0", 9191)
    assert properties.advertised_host == "host1.example"
    assert (properties.http_host, properties.http_port) == ("10.0.0.1", 8170)
    assert read(listeners="CONTROLLER://[fd00::1]:9191").advertised_host == "fd00::1"


def test_the_ensemble_has_kafkas_form_and_kafkas_timeout() -> None:
    access = read(zookeeper_session_timeout_ms="18000").zookeeper.access
    assert access.hosts == ("zk1:2181", "zk2:2181")
    assert access.chroot == "/fairlead"
    assert access.session_timeout_ms == 18_000
    assert not access.sets_acl


def test_its_own_settings_are_read_as_those_of_every_controller() -> None:
    assert read(auto_leader_rebalance_enable="false").configs.balances_leaders is False
    assert read(num_partitions="4").default_partitions == 4


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("zookeeper.connect", "", "zookeeper.connect must be set"),
        ("zookeeper.connect", "zk1:port", "bad server 'zk1:port'"),
        ("node.id", "3", "10000 or above, so that it is no broker's"),
        ("listeners", "CLIENT://127.0.0.1:9092", "'CLIENT' is not CONTROLLER"),
        ("listeners", "CONTROLLER://a:1,CONTROLLER://b:2", "a controller has one"),
        ("listeners", "CONTROLLER://0.0.0.0:9191", "must name the one that brokers shall use"),
        ("listeners", "CONTROLLER://:9191", "must name the one that brokers shall use"),
        ("advertised.listeners", "CONTROLLER://h:1", "port 1 is not the one of listeners, 9191"),
        ("log.dirs", "a,b", "one folder"),
        ("fairlead.http.listener", "8170", "not HOST:PORT"),
        ("zookeeper.set.acl", "true", "set fairlead.zookeeper.digest.file, too"),
        ("zookeeper.conect", "zk1", "did you mean zookeeper.connect?"),
    ],
)
def test_what_cannot_work_is_explained(name: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(**{name: value})
    assert words in refused.value.message


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_what_has_no_default_must_be_set(name: str) -> None:
    rest = {key: value for key, value in NEEDED.items() if key != name}
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
        read_controller_properties(rest)


def test_the_user_of_zookeeper_is_in_a_file_of_its_own() -> None:
    zookeeper = read(fairlead_zookeeper_digest_file="/etc/fairlead/zookeeper").zookeeper
    assert zookeeper.access.digest is None
    assert zookeeper.with_digest(b"fairlead:geheim\n", 0o100640).digest == "fairlead:geheim"
    with pytest.raises(ConfigError, match="its mode is 0644"):
        zookeeper.with_digest(b"fairlead:geheim\n", 0o100644)
    for wrong in (b"fairlead", b":x", b"x:", b"\xff"):
        with pytest.raises(ConfigError, match="does not hold USER:PASSWORD") as refused:
            zookeeper.with_digest(wrong, 0o100600)
        assert wrong.decode(errors="replace") not in refused.value.message.partition(": ")[2]


def test_a_wrong_file_ends_the_process_with_its_own_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--config", "/nowhere/at/all"]) == 2
    assert "fairlead controller: " in capsys.readouterr().err
    chosen = [f"--set={name}={text}" for name, text in NEEDED.items()]
    assert main([*chosen, "--set=fairlead.cluster.secret.file=/nowhere/secret"]) == 2
    assert "/nowhere/secret" in capsys.readouterr().err
