"""Limits of connections of single addresses, as text."""

from __future__ import annotations

import pytest

from fairlead_model.configs.broker_configs import BROKER_CONFIGS
from fairlead_model.configs.config_key import ConfigError
from fairlead_model.configs.connection_overrides import (
    CONNECTIONS_PER_IP_OVERRIDES,
    connection_overrides,
)


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("", {}),
        (" , ", {}),
        ("192.0.2.1:100", {"192.0.2.1": 100}),
        ("192.0.2.1:0, 192.0.2.2 : 7", {"192.0.2.1": 0, "192.0.2.2": 7}),
        ("localhost:5", {"127.0.0.1": 5, "::1": 5}),
        ("2001:DB8:0:0::1:9", {"2001:db8::1": 9}),
        ("[2001:db8::1]:9", {"2001:db8::1": 9}),
        ("::ffff:192.0.2.1:3", {"192.0.2.1": 3}),
        ("192.0.2.1:1,192.0.2.1:2", {"192.0.2.1": 2}),
    ],
)
def test_addresses_are_in_the_form_that_connections_have(text: str, limits: dict[str, int]) -> None:
    assert connection_overrides(text) == limits


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("192.0.2.1", "'192.0.2.1' is not written as ADDRESS:NUMBER"),
        ("192.0.2.1:", "'192.0.2.1:' is not written as ADDRESS:NUMBER"),
        ("192.0.2.1:-1", "'192.0.2.1:-1' is not written as ADDRESS:NUMBER"),
        ("192.0.2.1:2147483648", "'192.0.2.1:2147483648' is not written as ADDRESS:NUMBER"),
        ("proxy.example.com:9", "'proxy.example.com' is neither an IP address nor localhost"),
        (":9", "'' is neither an IP address nor localhost"),
    ],
)
def test_a_wrong_value_is_refused_and_named(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BROKER_CONFIGS[CONNECTIONS_PER_IP_OVERRIDES].parse(text)
    assert problem in refused.value.message
