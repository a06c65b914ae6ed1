"""Which pages the HTTP API answers, by what their browsers say."""

import pytest

from fairlead_broker.rest.gate import Gate
from fairlead_broker.rest.problems import ProblemError
from fairlead_broker.settings import build_settings
from fairlead_model.configs.config_values import ConfigError

REST = {
    "node.id": "1",
    "log.dirs": "/nowhere",
    "fairlead.cluster.secret.file": "secret",
    "fairlead.rest.listener": "[::1]:8082",
}


def gate(origins: str) -> Gate:
    settings = build_settings(
        file=REST | {"fairlead.rest.allowed.origins": origins}, environment={}, assignments={}
    )
    assert settings.rest is not None
    return Gate((settings.rest.host,), settings.rest.allowed_origins)


def test_a_page_is_let_in_by_the_origin_that_its_browser_sends() -> None:
    known = gate("http://[0:0::1]:3000,https://Example.com:443/")
    for origin in ("http://[::1]:3000", "https://example.com"):
        headers = {"Host": "[::1]:8082", "Origin": origin}
        known.check(headers, "http://[::1]:8082")
        assert known.cors_headers(headers)["Access-Control-Allow-Origin"] == origin
    for origin in ("http://[::1]", "http://[::2]:3000", "http://example.com", "null", ""):
        headers = {"Host": "localhost", "Origin": origin}
        with pytest.raises(ProblemError):
            known.check(headers, "http://[::1]:8082")
        assert known.cors_headers(headers) == {"Vary": "Origin"}


def test_a_page_may_compress_what_it_sends() -> None:
    headers = {"Host": "[::1]:8082", "Origin": "https://example.com"}
    known = gate("https://example.com")
    preflight = known.preflight_headers(headers, ("POST",))
    assert "Content-Encoding" in preflight["Access-Control-Allow-Headers"].split(", ")


@pytest.mark.parametrize(
    ("origin", "base_url"),
    [
        ("https://log.example.com", "https://log.example.com:443"),
        ("http://[::1]:8082", "http://[0:0::1]:8082"),
    ],
)
def test_its_own_pages_may_use_it(origin: str, base_url: str) -> None:
    gate("").check({"Host": "localhost", "Origin": origin}, base_url)


@pytest.mark.parametrize("origin", ["http://::1:3000", "http://[::1", "example.com", "*"])
def test_what_is_no_origin_is_refused_at_the_start(origin: str) -> None:
    with pytest.raises(ConfigError, match=r"fairlead\.rest\.allowed\.origins: .* is no origin"):
        gate(origin)
