"""The settings of one listener: its own if it has them, else the common ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_model.configs.security_configs import LISTENER_PREFIX

if TYPE_CHECKING:
    from fairlead_model.configs.config_key import ConfigValue
    from fairlead_model.configs.config_values import BrokerValues


class ListenerValues:
    """Reads settings as they apply to the listener of this name."""

    def __init__(self, values: BrokerValues, listener: str) -> None:
        self.listener = listener
        self._values = values
        self._prefix = f"{LISTENER_PREFIX}{listener.lower()}."

    def name_of(self, name: str) -> str:
        """Return the name with which a setting of this listener is set."""
        own = self._prefix + name
        return own if own in self._values.static else name

    def text(self, name: str) -> str | None:
        value = self._values.value(self.name_of(name))
        return None if value is None else str(value)

    def own_text(self, name: str) -> str | None:
        """Return the value that is set for this listener only."""
        own = self._prefix + name
        return str(self._values.value(own)) if own in self._values.static else None

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._values.value(self.name_of(name))
        return value if isinstance(value, tuple) else ()

    def number(self, name: str) -> int:
        return _whole(self._values.value(self.name_of(name)))

    def number_of_mechanism(self, name: str, mechanism: str) -> int:
        """Return a number that may be set for one SASL mechanism."""
        own = f"{self._prefix}{mechanism.lower()}.{name}"
        return _whole(self._values.value(own)) if own in self._values.static else self.number(name)

    def flag(self, name: str) -> bool:
        return self._values.value(self.name_of(name)) is True


def _whole(value: ConfigValue | None) -> int:
    return value if isinstance(value, int) else 0
