"""The settings of one listener: its own where it has them, else those of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_model.configs.security_configs import LISTENER_PREFIX

if TYPE_CHECKING:
    from fairlead_model.configs.config_key import ConfigValue
    from fairlead_model.configs.config_values import BrokerValues


class ListenerValues:
    """Reads settings as the listener of this name has them."""

    def __init__(self, values: BrokerValues, listener: str) -> None:
        self.listener = listener
        self._values = values
        self._prefix = f"{LISTENER_PREFIX}{listener.lower()}."

    def name_of(self, name: str) -> str:
        """Return the name under which a setting of this listener stands."""
        own = self._prefix + name
        return own if own in self._values.static else name

    def text(self, name: str) -> str | None:
        value = self._values.value(self.name_of(name))
        return None if value is None else str(value)

    def own_text(self, name: str) -> str | None:
        """Return what is set for this listener alone."""
        own = self._prefix + name
        return str(self._values.value(own)) if own in self._values.static else None

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._values.value(self.name_of(name))
        return value if isinstance(value, tuple) else ()

    def number(self, name: str) -> int:
        return _whole(self._values.value(self.name_of(name)))

    def number_of_mechanism(self, name: str, mechanism: str) -> int:
        """Return a number that may be set for one mechanism."""
        own = f"{self._prefix}{mechanism.lower()}.{name}"
        return _whole(self._values.value(own)) if own in self._values.static else self.number(name)

    def flag(self, name: str) -> bool:
        return self._values.value(self.name_of(name)) is True


def _whole(value: ConfigValue | None) -> int:
    return value if isinstance(value, int) else 0
