"""How addresses stand in settings: `NAME://HOST:PORT` for listeners, `HOST:PORT` elsewhere."""

from typing import Final

from fairlead_model.configs.config_key import ConfigError

_PORT_MAX: Final = 65_535


def parse_endpoint(text: str) -> tuple[str, str, int]:
    """Split `NAME://HOST:PORT`; IPv6 addresses stand in brackets."""
    name, separator, address = text.partition("://")
    if not separator or not name.strip():
        raise ConfigError("listeners", f"listeners: {text!r} is not NAME://HOST:PORT")
    host, port = parse_address("listeners", address)
    return name.strip().upper(), host, port


def parse_address(setting: str, address: str) -> tuple[str, int]:
    """Split `HOST:PORT`; ConfigError that names the setting."""
    host, separator, port = address.strip().rpartition(":")
    if not separator or not port.isdecimal() or not 0 <= int(port) <= _PORT_MAX:
        raise ConfigError(setting, f"{setting}: {address!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)
