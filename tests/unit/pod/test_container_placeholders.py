"""Placeholders of a pool's server.properties."""

import pytest

from fairlead_pod.placeholders import (
    PlaceholderError,
    expand_properties,
    pod_values,
    read_property,
)

POD = {
    "POD_NAME": "events-hot-2",
    "POD_IP": "10.0.0.7",
    "HOST_IP": "192.168.1.4",
    "NODE_NAME": "worker-2",
    "FAIRLEAD_ID_BASE": "100",
}


def expand(text: str, **changes: str) -> str:
    return expand_properties(text, pod_values(POD | changes))


def test_every_placeholder_is_filled() -> None:
    text = "a=${POD_IP} ${HOST_IP} ${POD_NAME} ${NODE_NAME} ${ORDINAL} ${BROKER_ID}\n"
    assert expand(text) == "a=10.0.0.7 192.168.1.4 events-hot-2 worker-2 2 102\n"


def test_sums_give_ports_of_outside_listeners() -> None:
    line = "advertised.listeners=OUT://${HOST_IP}:${BROKER_ID+31001},B://${POD_IP}:${ORDINAL + 5}"
    assert expand(line) == "advertised.listeners=OUT://192.168.1.4:31103,B://10.0.0.7:7\n"


def test_comments_and_names_are_left_alone() -> None:
    assert expand("# ${NOTHING}\n${X}=1\n\nplain\n") == "# ${NOTHING}\n${X}=1\n\nplain\n"


def test_ipv6_addresses_get_brackets() -> None:
    assert expand("a=${POD_IP}:9092", POD_IP="fd00::7") == "a=[fd00::7]:9092\n"


def test_the_pool_begins_at_zero_unless_told() -> None:
    assert expand("node.id=${BROKER_ID}", FAIRLEAD_ID_BASE="0") == "node.id=2\n"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("a=${PODIP}", "line 1, a: there is no placeholder ${PODIP}; there are POD_IP, HOST_IP"),
        ("x=1\nb=${POD_IP", "line 2, b: '${POD_IP' is not closed"),
        ("a=${POD_IP+1}", "is not a sum of a number"),
        ("a=${ORDINAL+x}", "is not a sum of a number"),
        ("a=${}", "there is no placeholder"),
    ],
)
def test_a_wrong_placeholder_is_named_with_its_line(line: str, complaint: str) -> None:
    with pytest.raises(PlaceholderError) as caught:
        expand(line)
    assert complaint in str(caught.value)


def test_what_the_pod_does_not_say_is_named() -> None:
    with pytest.raises(PlaceholderError, match=r"\$\{POD_IP\} needs POD_IP in the environment"):
        expand("a=${POD_IP}", POD_IP="")
    with pytest.raises(PlaceholderError, match=r"needs a POD_NAME that ends in -NUMBER"):
        expand("a=${BROKER_ID}", POD_NAME="events")
    with pytest.raises(PlaceholderError, match="FAIRLEAD_ID_BASE=x is no number"):
        expand("a=1", FAIRLEAD_ID_BASE="x")


def test_the_last_value_of_a_setting_counts() -> None:
    assert read_property("a = 1\nb=2\na=3\n", "a") == "3"
    assert read_property("a=1\n", "c") == ""
