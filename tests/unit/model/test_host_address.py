"""Hosts with ports: what is read, what is written, and in which form addresses are compared."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_model.host_address import join_address, normal_address, peer_address, split_address

NAMES = st.from_regex(r"[A-Za-z0-9._-]{1,30}", fullmatch=True)
HOSTS = NAMES | st.ip_addresses().map(str)
PORTS = st.integers(0, 65_535)


@given(HOSTS, PORTS)
def test_what_is_written_is_read_again(host: str, port: int) -> None:
    assert split_address(join_address(host, port)) == (host, port)


@given(st.text(alphabet="[]:/@%,. 019afgz\n\u0663", max_size=24))
def test_whatever_is_read_can_be_written_and_read_again(text: str) -> None:
    try:
        host, port = split_address(text)
    except ValueError:
        return
    assert split_address(join_address(host, port)) == (host, port)
    assert host == "" or ":" not in host or ipaddress.ip_address(host).version == 6


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("2001:db8::1:9092", "needs brackets"),
        ("::1:9092", "is neither|needs brackets"),
        ("[::1]", "is not HOST:PORT"),
        ("[::1", "neither a name"),
        ("[10.0.0.1]:9092", "no IPv6 address"),
        ("[kafka]:9092", "no IPv6 address"),
        ("[::1]x:9092", "neither a name"),
        ("a b:9092", "neither a name"),
        ("[fe80::1%a\nb]:1", "no IPv6 address"),
        ("[::%]]:1", "no IPv6 address"),
        ("a\x00b:9092", "neither a name"),
        ("h:65536", "is not HOST:PORT"),
        ("h:\u0669", "is not HOST:PORT"),
        ("h:-1", "is not HOST:PORT"),
        ("h:", "is not HOST:PORT"),
    ],
)
def test_what_is_no_address_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        split_address(text)


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_mapped_into_ipv6_is_the_ipv4_address(address: object) -> None:
    assert normal_address(f"::ffff:{address}") == peer_address(f"::FFFF:{address}") == str(address)


@given(st.ip_addresses(v=6))
def test_all_ways_to_write_an_address_are_one(address: ipaddress.IPv6Address) -> None:
    assert normal_address(address.exploded.upper()) == normal_address(str(address))


def test_what_is_no_address_is_told_as_it_is() -> None:
    assert peer_address("") == ""
    assert peer_address("no:address") == "no:address"
    with pytest.raises(ValueError, match="does not appear"):
        normal_address("localhost")
