"""PLAIN: a password against a SCRAM credential, and what is remembered of it."""

import pytest
from secure_listener import StaticCredentials

from fairlead_broker.security.sasl.exchange import Answer, Login, LoginError, Work
from fairlead_broker.security.sasl.plain import PlainExchange, RightPasswords
from fairlead_model.security.scram import ScramMechanism

SHA_256, SHA_512 = ScramMechanism


@pytest.fixture
def credentials() -> StaticCredentials:
    return StaticCredentials(alice="secret", ünï="pä\tss")


def log_in(
    credentials: StaticCredentials, token: bytes, right: RightPasswords | None = None
) -> tuple[Answer, bool]:
    """The answer, and whether it took a derivation."""
    step = PlainExchange(credentials.find, right or RightPasswords(), secret=b"x").receive(token)
    return (step.run(), True) if isinstance(step, Work) else (step, False)


@pytest.mark.parametrize("token", [b"\0alice\0secret", b"alice\0alice\0secret"])
def test_the_right_password(credentials: StaticCredentials, token: bytes) -> None:
    assert log_in(credentials, token) == (Answer(b"", Login("alice", verified_by=SHA_512)), True)


def test_names_and_passwords_beyond_ascii(credentials: StaticCredentials) -> None:
    answer, _ = log_in(credentials, "\0ünï\0pä\tss".encode())
    assert answer.login is not None and answer.login.user == "ünï"


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"alice\0secret",
        b"\0alice\0",
        b"\0\0secret",
        b"\0alice\0secret\0",
        b"bob\0alice\0secret",
        b"\0alice\0\xff",
        b"\0*\0secret",
        b"\0alice\0" + b"x" * 2000,
    ],
)
def test_messages_that_are_refused_at_once(credentials: StaticCredentials, token: bytes) -> None:
    with pytest.raises(LoginError):
        PlainExchange(credentials.find, RightPasswords(), secret=b"x").receive(token)


@pytest.mark.parametrize("token", [b"\0alice\0wrong", b"\0nobody\0secret"])
def test_wrong_passwords_and_nobody_cost_a_derivation_each(
    credentials: StaticCredentials, token: bytes
) -> None:
    step = PlainExchange(credentials.find, RightPasswords(), secret=b"x").receive(token)
    assert isinstance(step, Work)
    with pytest.raises(LoginError, match="wrong password, or no such user"):
        step.run()


def test_what_was_right_a_moment_ago_costs_nothing_until_the_credential_changes(
    credentials: StaticCredentials,
) -> None:
    right = RightPasswords()
    token = b"\0alice\0secret"
    assert log_in(credentials, token, right)[1]
    assert not log_in(credentials, token, right)[1]
    credentials.set(SHA_512, "alice", "new")
    step = PlainExchange(credentials.find, right, secret=b"x").receive(token)
    assert isinstance(step, Work)
    with pytest.raises(LoginError):
        step.run()
    # The other credential of that user is not of a password that is out of date.
    credentials.set(SHA_512, "alice", None)
    assert log_in(credentials, token, right)[0].login == Login("alice", verified_by=SHA_256)


@pytest.mark.parametrize("password", ["new", None])
def test_a_credential_that_changes_while_its_password_waits_lets_nobody_in(
    credentials: StaticCredentials, password: str | None
) -> None:
    exchange = PlainExchange(credentials.find, RightPasswords(), secret=b"x")
    step = exchange.receive(b"\0alice\0secret")
    assert isinstance(step, Work)
    assert step.run().login is not None
    step.confirm()
    credentials.set(SHA_512, "alice", password)
    with pytest.raises(LoginError, match="changed meanwhile"):
        step.confirm()
