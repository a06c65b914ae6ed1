"""The file with the cluster's secret: how long it is, and who may read it."""

import pytest

from fairlead_model.session.session_protocol import take_secret

SECRET = b"0123456789abcdef"
REGULAR = 0o100000


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440, 0o700])
def test_the_owner_and_the_group_may_read_it(mode: int) -> None:
    assert take_secret(SECRET + b"\n", REGULAR | mode) == SECRET


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o660, 0o620, 0o602, 0o601, 0o666])
def test_a_file_that_others_can_use_is_refused_with_its_mode(mode: int) -> None:
    with pytest.raises(ValueError, match=f"its mode is {mode:04o}.*chmod 0640"):
        take_secret(SECRET, REGULAR | mode)


def test_a_short_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 16 bytes"):
        take_secret(SECRET[1:], REGULAR | 0o600)
