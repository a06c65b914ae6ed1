"""Made-up logins: whatever a client says before it is let in, nobody gets in and nothing breaks."""

import random

import pytest
from proofs import Proof
from scram_client import ScramClient
from secure_listener import StaticCredentials

from fairlead_broker.security.sasl.exchange import Answer, Exchange, Login, LoginError, Work
from fairlead_broker.security.sasl.login_session import LoginSession, NotNowError
from fairlead_broker.security.sasl.oauthbearer import OAuthBearerExchange, TokenError
from fairlead_broker.security.sasl.plain import PlainExchange, RightPasswords
from fairlead_broker.security.sasl.scram import ScramExchange
from fairlead_model.security.scram import ScramMechanism

INPUTS = Proof("hostile logins", part=20_000, whole=1_000_000, variable="FAIRLEAD_LOGINS")
CREDENTIALS = StaticCredentials(alice="secret", bob="secret")
RIGHT = RightPasswords()
PLAIN = b"\0alice\0secret"
BEARER = b"n,,\x01auth=Bearer good\x01\x01"
SHA_256, SHA_512 = ScramMechanism


class OneToken:
    """Knows one token."""

    def judge(self, token: str) -> Login:
        if token != "good":
            raise TokenError("another one")
        return Login("alice")


def make_scram(mechanism: ScramMechanism) -> Exchange:
    return ScramExchange(mechanism, CREDENTIALS.find, nonce="ours", secret=b"cluster")


MECHANISMS = {
    "SCRAM-SHA-256": lambda: make_scram(SHA_256),
    "SCRAM-SHA-512": lambda: make_scram(SHA_512),
    "PLAIN": lambda: PlainExchange(CREDENTIALS.find, RIGHT, secret=b"cluster"),
    "OAUTHBEARER": lambda: OAuthBearerExchange(OneToken()),
}


def wanted_tokens(mechanism: str, challenge: bytes) -> list[bytes]:
    """What would be right, so that most of it can be bent."""
    if mechanism == "PLAIN":
        return [PLAIN]
    if mechanism == "OAUTHBEARER":
        return [BEARER, b"\x01"]
    number = SHA_256 if mechanism.endswith("256") else SHA_512
    client = ScramClient(number, "alice", "wrong")
    return [client.first, client.last(challenge) if challenge else client.first]


def bend(token: bytes, chance: random.Random) -> bytes:
    """One kind of damage."""
    data = bytearray(token)
    position = chance.randrange(len(data) + 1)
    match chance.randrange(5):
        case 0:
            data[position : position + 1] = bytes([chance.randrange(256)])
        case 1:
            del data[position : position + chance.randrange(1, 8)]
        case 2:
            data[position:position] = chance.choice((b",", b"=", b"\0", b"\x01", b"m=", b"\xff"))
        case 3:
            data[position:] = b""
        case _:
            data += data[: chance.randrange(1, 2000)] * chance.randrange(1, 4)
    return bytes(data)


def is_known(token: bytes) -> bool:
    """Whether it is a message with which somebody may come in: by the same rule, written anew."""
    if token.count(b"\0") == 2:
        _, user, password = token.split(b"\0")
        return user in (b"alice", b"bob") and password == b"secret"
    return b"bearer good\x01" in token.lower()


@pytest.mark.proof
@pytest.mark.timeout(3600)
def test_nobody_gets_in_by_bent_messages_and_nothing_breaks() -> None:
    chance = random.Random(16)
    # Deriving keys costs milliseconds: the right password is remembered from here on.
    first = PlainExchange(CREDENTIALS.find, RIGHT, secret=b"cluster").receive(PLAIN)
    assert isinstance(first, Work) and first.run().login is not None
    done = 0
    while done < INPUTS.chosen():
        session = LoginSession(MECHANISMS, dict.fromkeys(MECHANISMS, 0))
        mechanism = chance.choice([*MECHANISMS, "GSSAPI", ""])
        challenge = b""
        try:
            session.choose(mechanism, version=chance.randrange(2), now_ms=done)
            for _ in range(chance.randrange(1, 5)):
                done += 1
                token = chance.choice(wanted_tokens(mechanism, challenge))
                if chance.random() < 0.9:
                    token = bend(token, chance)
                step = session.receive(token)
                if isinstance(step, Work):
                    if mechanism == "PLAIN":
                        # Not the password that is remembered: a thread would derive keys of it.
                        assert token != PLAIN
                        break
                    step = step.run()
                assert isinstance(step, Answer)
                session.finish(step, now_ms=0)
                if step.login is not None:
                    assert is_known(token), token
                    break
                challenge = step.token
        except (LoginError, NotNowError):
            done += 1
