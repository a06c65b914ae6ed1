"""Names in certificates and the users they become, against Kafka's own answers."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_broker.security.distinguished_name import (
    BadNameError,
    format_distinguished_name,
)
from fairlead_broker.security.principal_mapping import NoRuleError, PrincipalMapping
from fairlead_model.configs.config_key import ConfigError

CASES: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("golden").joinpath("kafka_principal_names.json").read_text()
)


def test_names_are_those_of_java() -> None:
    for case in CASES:
        assert format_distinguished_name(bytes.fromhex(case["der"])) == case["name"], case["der"]


def test_users_are_those_of_kafka() -> None:
    for case in CASES:
        mapping = PrincipalMapping.parse("rules", case["rules"])
        try:
            user = mapping.apply(case["name"])
        except NoRuleError:
            user = None
        assert user == case["user"], case


@given(st.binary(max_size=80))
def test_bytes_that_are_no_name_are_refused(data: bytes) -> None:
    try:
        assert isinstance(format_distinguished_name(data), str)
    except BadNameError:
        return


@given(st.sampled_from(CASES), st.integers(0, 400), st.binary(min_size=1, max_size=3))
def test_names_with_bent_bytes_are_read_or_refused(
    case: dict[str, Any], position: int, bent: bytes
) -> None:
    der = bytearray.fromhex(case["der"])
    position %= len(der)
    der[position : position + len(bent)] = bent
    try:
        assert isinstance(format_distinguished_name(bytes(der)), str)
    except BadNameError:
        return


@pytest.mark.parametrize(
    "rules",
    [
        "RULE:x",
        "RULE:x/y",
        "DEFAULT RULE:x/y/",
        "RULE:(/x/",
        "RULE:^(?=x)$/x/",
        "RULE:(x)\\1/x/",
        "RULE:x/y/Q",
        "RULE:^CN=(.*)$/$a/",
        "RULE:^CN=(.*)$/a$/",
        "RULE:^CN=(?<n>.*)$/${m}/",
        "RULE:^CN=(?<n>.*)$/${n/",
        "RULE:^CN=.*$/$1/",
        "default",
        "",
    ],
)
def test_rules_that_cannot_be_read_stop_the_start(rules: str) -> None:
    with pytest.raises(ConfigError, match="rules"):
        PrincipalMapping.parse("rules", rules)


@pytest.mark.parametrize(
    ("rule", "user"),
    [
        ("RULE:^CN=(?<n>.*?),.*$/${n}/", "Alice"),
        ("RULE:^CN=(?<n>[^,]*)(,L=x)?.*$/${n}-$2/L", "alice-"),
        ("RULE:^CN=(.*?),.*$/$10/", "Alice0"),
        ("RULE:^CN=(.*?),.*$/$100/", "Alice00"),
        ("RULE:^CN=(.*?),.*$/$01/", "Alice"),
        ("RULE:^CN=(.*?),.*$/$02/", "CN=Alice,OU=ops,O=Ex2"),
        ("RULE:^CN=(.*?),.*$/$9/", "$9"),
        ("RULE:^CN=(.*?),.*$/\\${n}/", "${n}"),
        ("RULE:^CN=(.)(.)(.)(.)(.)(.*)$/$6$11/", ",OU=ops,O=ExA1"),
        ("RULE:^CN=.*$/$0/", "CN=Alice,OU=ops,O=Ex"),
        # The end of the name matches once more, or only a part of it is replaced.
        ("RULE:.*/app/", "appapp"),
        ("RULE:^.*$/app/", "app"),
        ("RULE:(.*)/u-$1/", "u-CN=Alice,OU=ops,O=Exu-"),
        ("RULE:CN=Alice|CN=Alice,.*/x/", "x,OU=ops,O=Ex"),
        ("RULE:(.*?)/x/", "xCxNx=xAxlxixcxex,xOxUx=xoxpxsx,xOx=xExxx"),
    ],
)
def test_groups_are_those_that_kafka_takes(rule: str, user: str) -> None:
    """The users are what `SslPrincipalMapper` of Kafka 4.3 gives."""
    assert PrincipalMapping.parse("rules", rule).apply("CN=Alice,OU=ops,O=Ex") == user


def test_patterns_take_time_in_proportion_to_names() -> None:
    mapping = PrincipalMapping.parse("rules", "RULE:^(CN=)(a+)+$/x/")
    with pytest.raises(NoRuleError):
        mapping.apply("CN=" + "a" * 4000 + "!")
    with pytest.raises(NoRuleError, match="5000 characters"):
        mapping.apply("a" * 5000)


@pytest.mark.parametrize("name", ["CN=*", "CN=*,O=x"])
def test_nobody_is_called_everybody(name: str) -> None:
    mapping = PrincipalMapping.parse("setting", "RULE:^CN=([^,]*).*$/$1/,DEFAULT")
    assert mapping.apply("CN=*x,O=x") == "*x"
    with pytest.raises(NoRuleError, match="nobody can have"):
        mapping.apply(name)
