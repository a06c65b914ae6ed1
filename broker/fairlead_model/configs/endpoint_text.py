"""Parse addresses in settings: `NAME://HOST:PORT` for listeners, `HOST:PORT` elsewhere."""

from fairlead_model.configs.config_key import ConfigError
from fairlead_model.host_address import split_address


def parse_endpoint(text: str, setting: str = "listeners") -> tuple[str, str, int]:
    """Split `NAME://HOST:PORT`, with IPv6 in brackets. ConfigError names the setting."""
    name, separator, address = text.partition("://")
    if not separator or not name.strip():
        raise ConfigError(setting, f"{setting}: {text!r} is not NAME://HOST:PORT")
    host, port = parse_address(setting, address)
    return name.strip().upper(), host, port


def parse_address(setting: str, address: str) -> tuple[str, int]:
    """Split `HOST:PORT`; ConfigError names the setting."""
    try:
        return split_address(address)
    except ValueError as error:
        raise ConfigError(setting, f"{setting}: {error}") from None
