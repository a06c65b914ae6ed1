"""SCRAM, the server's side: RFC 5802 and 7677, and what clients do wrong by mistake or malice."""

from base64 import b64encode
from typing import Any

import pytest
from scram_client import ScramClient
from secure_listener import StaticCredentials

from fairlead_broker.security.sasl.exchange import Answer, Login, LoginError
from fairlead_broker.security.sasl.scram import ScramExchange
from fairlead_model.security.scram import ScramCredential, ScramMechanism, derive

SHA_256 = ScramMechanism.SCRAM_SHA_256
NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
NAMES = ["user", "a,b=c", "=2C", "user with blanks", "ünïcode", "日本", "CN=x,O=y", "🙂"]


def exchange(credentials: StaticCredentials, mechanism: ScramMechanism = SHA_256) -> ScramExchange:
    return ScramExchange(mechanism, credentials.find, nonce=NONCE, secret=b"cluster")


def log_in(credentials: StaticCredentials, client: ScramClient) -> Answer:
    server = exchange(credentials)
    return server.receive(client.last(server.receive(client.first).token))


def test_the_exchange_of_rfc_7677() -> None:
    credential = derive(SHA_256, "pencil", 4096, b"[m\x99h\x9d\x125\x8e\xec\xa0K\x14\x126\xfa\x81")
    server = ScramExchange(
        SHA_256, lambda mechanism, user: credential, nonce=NONCE, secret=b"cluster"
    )
    first = server.receive(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first.token == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    last = server.receive(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert last.token == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert last.login == Login("user", verified_by=SHA_256)


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
@pytest.mark.parametrize("user", NAMES)
def test_users_of_all_kinds_of_names_log_in(mechanism: ScramMechanism, user: str) -> None:
    credentials = StaticCredentials(**{user: "a pässword"})
    server = exchange(credentials, mechanism)
    client = ScramClient(mechanism, user, "a pässword")
    answer = server.receive(client.last(server.receive(client.first).token))
    assert answer.token == client.signature
    assert answer.login == Login(user, verified_by=mechanism)


def test_the_nonce_as_older_librdkafka_writes_it() -> None:
    server = exchange(StaticCredentials(alice="secret"))
    client = ScramClient(SHA_256, "alice", "secret", nonce="theirs")
    challenge = server.receive(client.first).token
    whole = challenge.split(b",")[0].removeprefix(b"r=")
    answer = server.receive(client.last(challenge, nonce=b"theirs" + whole))
    assert answer.login is not None and answer.token == client.signature


@pytest.mark.parametrize("header", ["n,,", "y,,", "n,a=alice,", "y,a=alice,"])
def test_headers_that_are_fine(header: str) -> None:
    client = ScramClient(SHA_256, "alice", "secret", header=header)
    assert log_in(StaticCredentials(alice="secret"), client).login is not None


@pytest.mark.parametrize("user", ["山田\u3000太郎", "a\u00a0b", "a\u200db", "a,b=c"])
def test_a_name_of_any_script_logs_in(user: str) -> None:
    client = ScramClient(SHA_256, user, "secret")
    assert log_in(StaticCredentials(**{user: "secret"}), client).login is not None


def test_who_is_not_there_is_answered_like_who_is_and_refused_like_a_wrong_password() -> None:
    """R32."""
    credentials = StaticCredentials(alice="secret")
    salts: dict[str, Any] = {}
    for user in ("alice", "nobody", "nobody", "somebody"):
        server = exchange(credentials)
        client = ScramClient(SHA_256, user, "wrong")
        challenge = server.receive(client.first).token
        assert challenge.endswith(b",i=4096")
        salts.setdefault(user, set()).add(challenge.split(b",s=")[1])
        with pytest.raises(LoginError, match="wrong password, or no such user"):
            server.receive(client.last(challenge))
    # The same each time, or it would tell.
    assert [len(found) for found in salts.values()] == [1, 1, 1]
    assert salts["nobody"] != salts["somebody"]


def test_a_fake_user_cannot_be_logged_in_whatever_the_proof() -> None:
    server = exchange(StaticCredentials())
    client = ScramClient(SHA_256, "nobody", "any")
    whole = server.receive(client.first).token.split(b",")[0]
    with pytest.raises(LoginError):
        server.receive(b"c=biws," + whole + b",p=" + b64encode(bytes(32)))


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n",
        b"n,,",
        b",,n=alice,r=x",
        b"p=tls-server-end-point,,n=alice,r=x",
        b"n,b=alice,n=alice,r=x",
        b"n,a=bob,n=alice,r=x",
        b"n,,m=ext,n=alice,r=x",
        b"n,,r=x,n=alice",
        b"n,,n=alice",
        b"n,,n=alice,r=",
        b"n,,n=alice,r=\xff",
        b"n,,n=alice,r=" + b"x" * 300,
        b"n,,n=,r=x",
        b"n,,n=*,r=x",
        b"n,,n=al=ice,r=x",
        b"n,,n=al=2cice,r=x",
        b"n,,n=\xff,r=x",
        b"n,,n=alice\n,r=x",
        b"n,,n=alice,r=x,tokenauth=true",
        b"n,,n=" + b"x" * 2000 + b",r=x",
    ],
)
def test_first_messages_that_are_refused(first: bytes) -> None:
    with pytest.raises(LoginError):
        exchange(StaticCredentials(alice="secret")).receive(first)


def bend(message: bytes, client: ScramClient, challenge: bytes, how: str) -> bytes:
    whole = challenge.split(b",")[0]
    return {
        "another nonce": client.last(challenge, nonce=b"someone_elses"),
        # Kafka once compared only its end (CVE-2024-56128).
        "its own nonce before ours": client.last(challenge, nonce=b"evil" + whole[2:]),
        "only the server's nonce": client.last(challenge, nonce=NONCE.encode()),
        "another header": message.replace(b"c=biws", b"c=eSws"),
        "no proof": message.rpartition(b",p=")[0],
        "an empty proof": message.rpartition(b"p=")[0] + b"p=",
        "a proof that is no base64": message.rpartition(b"p=")[0] + b"p=####",
        "a longer proof": message.rpartition(b"p=")[0] + b"p=" + b64encode(bytes(64)),
        "nothing": b"",
        "the first message again": client.first,
    }[how]


@pytest.mark.parametrize(
    "how",
    [
        "another nonce",
        "its own nonce before ours",
        "only the server's nonce",
        "another header",
        "no proof",
        "an empty proof",
        "a proof that is no base64",
        "a longer proof",
        "nothing",
        "the first message again",
    ],
)
def test_last_messages_that_are_refused(how: str) -> None:
    server = exchange(StaticCredentials(alice="secret"))
    client = ScramClient(SHA_256, "alice", "secret")
    challenge = server.receive(client.first).token
    with pytest.raises(LoginError):
        server.receive(bend(client.last(challenge), client, challenge, how))


def test_a_recorded_login_is_worth_nothing() -> None:
    credentials = StaticCredentials(alice="secret")
    client = ScramClient(SHA_256, "alice", "secret")
    server = exchange(credentials)
    recorded = client.last(server.receive(client.first).token)
    assert server.receive(recorded).login is not None
    again = ScramExchange(SHA_256, credentials.find, nonce="another nonce", secret=b"cluster")
    again.receive(client.first)
    with pytest.raises(LoginError):
        again.receive(recorded)


def test_a_credential_that_changes_meanwhile_lets_nobody_in() -> None:
    credentials = StaticCredentials(alice="secret")
    server = exchange(credentials)
    client = ScramClient(SHA_256, "alice", "secret")
    last = client.last(server.receive(client.first).token)
    credentials.set(SHA_256, "alice", "new")
    with pytest.raises(LoginError, match="changed meanwhile"):
        server.receive(last)


def test_a_stored_credential_of_few_iterations_lets_nobody_in() -> None:
    weak = derive(SHA_256, "secret", 1000, b"a salt of a test")

    def find(mechanism: ScramMechanism, user: str) -> ScramCredential:
        return weak

    with pytest.raises(LoginError, match="too weak"):
        ScramExchange(SHA_256, find, nonce=NONCE, secret=b"cluster").receive(b"n,,n=alice,r=x")
