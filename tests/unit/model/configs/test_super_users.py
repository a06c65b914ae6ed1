"""Super users, as text."""

from __future__ import annotations

import pytest

from fairlead_model.configs.broker_configs import BROKER_CONFIGS
from fairlead_model.configs.config_key import ConfigError


@pytest.mark.parametrize("text", ["", "User:a; User:CN=b,O=c;", "Group:ops;User:a", "Role:a:b"])
def test_principals_of_any_type_are_taken(text: str) -> None:
    assert BROKER_CONFIGS["super.users"].parse(text) == text


@pytest.mark.parametrize("text", ["a", "User:", "User:*", ":a", "user:a", "User:a,b;c"])
def test_what_would_make_nobody_a_super_user_by_mistake_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not written as User:NAME"):
        BROKER_CONFIGS["super.users"].parse(text)
