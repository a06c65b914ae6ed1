"""Origins of web pages, as they are written and as browsers send them."""

import re
from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_model.web_origin import ORIGIN_PATTERN, web_origin

PORTS = st.integers(1, 65_535)
ADDRESSES = st.ip_addresses(v=6) | st.sampled_from(
    [
        IPv6Address(text)
        for text in (
            *("::", "::1", "1::", "1::8", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8"),
            *("::ffff:0:0", "::ffff:c000:201", "::fffe:c000:201"),
        )
    ]
)


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("https://example.com", "https://example.com"),
        ("HTTPS://Example.COM", "https://example.com"),
        ("https://example.com:443", "https://example.com"),
        ("http://example.com:80", "http://example.com"),
        ("http://example.com:443", "http://example.com:443"),
        ("http://10.0.0.1:3000", "http://10.0.0.1:3000"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        ("http://[2001:DB8:0:0::1]", "http://[2001:db8::1]"),
        ("http://[0:0:0:0:0:0:0:1]:80", "http://[::1]"),
        ("http://[0:0:0:0:0:FFFF:C000:0201]", "http://[::ffff:c000:201]"),
        ("http://[::ffff:0:0]", "http://[::ffff:0:0]"),
    ],
)
def test_it_has_one_form(written: str, sent: str) -> None:
    assert web_origin(written) == web_origin(sent) == sent


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "example.com",
        "ftp://example.com",
        "https://",
        "https://example.com/",
        "https://example.com/page",
        "https://user@example.com",
        "https://example.com:",
        "https://example.com:0",
        "https://example.com:65536",
        "https://example.com:\u0663",
        "http\u017f://example.com",
        "http://::1",
        "http://::1:3000",
        "http://[::1",
        "http://[::1]3000",
        "http://[10.0.0.1]",
        "http://[1:2:3]",
        "http://[1:2:3:4:5:6:7:8:9]",
        "http://[1::2::3]",
        "http://[fe80::1%eth0]",
        "https://example.com\n",
    ],
)
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no origin: an origin is http:// or https://"):
        web_origin(text)


@given(ADDRESSES, PORTS, st.booleans())
def test_any_address_in_any_notation(address: IPv6Address, port: int, is_long: bool) -> None:
    digits = address.packed.hex()
    exploded = ":".join(digits[at : at + 4] for at in range(0, len(digits), 4))
    short = str(address)
    if address.ipv4_mapped is not None:
        # Browsers do not show the IPv4 address. Python does from 3.13 on.
        short = f"::ffff:{int(digits[-8:-4], 16):x}:{int(digits[-4:], 16):x}"
    groups = exploded if is_long else short
    assert web_origin(f"http://[{groups}]:{port}").startswith(f"http://[{short}]")


@given(st.text(alphabet="0123af:", min_size=2, max_size=30))
def test_only_addresses_are_taken_for_some(text: str) -> None:
    try:
        IPv6Address(text)
    except ValueError:
        is_address = False
    else:
        is_address = True
    matches = re.fullmatch(ORIGIN_PATTERN, f"http://[{text}]") is not None
    assert matches == is_address
