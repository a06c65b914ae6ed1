"""No value of a manifest becomes a further line of a broker's settings, or takes one away."""

import pytest
from operator_views import SETTINGS, cluster_view, pool_view

from fairlead_model.configs.property_files import read_properties
from fairlead_operator.resources.broker_settings import broker_setting_problem
from fairlead_operator.specs.config_map import build_properties
from fairlead_operator.specs.live_settings import render_properties
from fairlead_pod.placeholders import expand_properties, pod_values

MORE = ["a\nlisteners=CLEAR://:9092", "a\r\nb=c", "a\u2028b=c", "a\x85b=c", "a\x0bb=c", "a\n\\"]
POD = pod_values({"POD_NAME": "demo-main-0", "POD_IP": "10.0.0.1", "HOST_IP": "10.0.0.2"})


@pytest.mark.parametrize("value", [*MORE, "a\\", "a\\ ", "a\\\\"])
def test_a_setting_of_several_lines_is_refused_and_said(value: str) -> None:
    problem = broker_setting_problem("ssl.cipher.suites", value)
    assert problem == "ssl.cipher.suites: a value is one line, and does not end with a backslash"
    assert broker_setting_problem("ssl.cipher.suites", "TLS_AES_128_GCM_SHA256\n") is None


@pytest.mark.parametrize("value", [*MORE, "a\\", "a\\ ", "a\\\\", "\\"])
def test_what_brokers_read_has_the_names_that_were_given_and_no_others(value: str) -> None:
    given = {"broker.rack": value, "controller.x": "1", "super.users": value, "z": "2"}
    read = read_properties(expand_properties(render_properties(given), POD))
    assert read.keys() == given.keys()
    assert (read["controller.x"], read["z"]) == ("1", "2")
    assert render_properties({"a": " b\\c ", "d": ""}) == "a=\\ b\\\\c \nd=\n"


def test_a_rack_says_nothing_about_who_may_do_what() -> None:
    """Its line comes after that of the authorizer, and the last one would hold."""
    pool = pool_view(rack="a\nauthorizer.class.name=")
    settings = build_properties(cluster_view(), pool, SETTINGS)
    assert read_properties(render_properties(settings)).keys() == settings.keys()


def test_brokers_read_the_backslashes_that_were_given() -> None:
    rules = r"RULE:^CN=(.*?)\.example$/$1/,DEFAULT"
    given = {"ssl.principal.mapping.rules": rules, "broker.rack": "a\\\\"}
    assert read_properties(expand_properties(render_properties(given), POD)) == given
