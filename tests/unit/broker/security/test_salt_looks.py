"""A user who is not there has a salt such as users have, whichever program made them (R32)."""

import random
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Callable

import pytest
from scram_client import ScramClient

from fairlead_broker.limits import SALT_LOOKS_MAX
from fairlead_broker.security.image_credentials import ImageCredentials
from fairlead_broker.security.sasl.plain import PlainExchange, RightPasswords
from fairlead_broker.security.sasl.salt_looks import look_of
from fairlead_broker.security.sasl.scram import ScramExchange, fake_credential
from fairlead_model.cluster import CredentialChanged
from fairlead_model.security.scram import ScramCredential, ScramMechanism, build_salt, derive

SHA_256, SHA_512 = ScramMechanism
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def by_kafka(chance: random.Random) -> bytes:
    """As `ScramFormatter.secureRandomBytes`: a number of 130 bits in base 36."""
    number, digits = chance.getrandbits(130), ""
    while number:
        number, digit = divmod(number, 36)
        digits = DIGITS[digit] + digits
    return digits.encode()


def by_fairlead(chance: random.Random) -> bytes:
    return build_salt(chance.randbytes(26))


def by_librdkafka(chance: random.Random) -> bytes:
    return chance.randbytes(64)


def made(salt: bytes, iterations: int = 4096) -> ScramCredential:
    return ScramCredential(SHA_256, iterations, salt, stored_key=b"k" * 32, server_key=b"k" * 32)


def image_of(*credentials: ScramCredential) -> ImageCredentials:
    known = {(each.mechanism, f"user-{at}"): each for at, each in enumerate(credentials)}
    image = ImageCredentials()
    image.publish(
        known, [CredentialChanged(user, its, each) for (its, user), each in known.items()]
    )
    return image


def challenge(image: ImageCredentials, user: str) -> tuple[bytes, int]:
    """What a client sees of a user before it has shown that it knows the password."""
    server = ScramExchange(SHA_256, image.find, nonce="n", secret=b"x", looks=image.looks)
    answer = server.receive(ScramClient(SHA_256, user, "any").first).token
    salt, iterations = re.findall(rb",s=([^,]+),i=(\d+)$", answer)[0]
    return b64decode(salt), int(iterations)


@pytest.mark.parametrize("make", [by_kafka, by_fairlead, by_librdkafka])
def test_who_is_not_there_looks_like_users_of_each_program(
    make: Callable[[random.Random], bytes],
) -> None:
    chance = random.Random(7)
    image = image_of(*(made(make(chance), 10_000) for _ in range(400)))
    there = {look_of(image.find(SHA_256, f"user-{at}") or made(b"")) for at in range(400)}
    for at in range(400):
        salt, iterations = challenge(image, f"nobody-{at}")
        assert look_of(made(salt, iterations)) in there, salt
        assert (salt, iterations) == challenge(image, f"nobody-{at}")


def test_each_look_is_as_frequent_as_among_users() -> None:
    chance = random.Random(7)
    image = image_of(
        *(made(by_librdkafka(chance)) for _ in range(90)),
        *(made(by_fairlead(chance), 8192) for _ in range(10)),
    )
    found = Counter(challenge(image, f"nobody-{at}")[1] for at in range(1000))
    assert found[8192] == pytest.approx(100, abs=40)
    assert found[4096] + found[8192] == 1000


def test_few_names_look_otherwise_when_users_come_and_go() -> None:
    chance = random.Random(7)
    others = [made(by_librdkafka(chance)) for _ in range(50)]
    names = [f"nobody-{at}" for at in range(500)]
    before, after = image_of(*others), image_of(*others, made(by_fairlead(chance)))
    differ = [each for each in names if challenge(before, each) != challenge(after, each)]
    assert 0 < len(differ) < 40
    gone = CredentialChanged("user-50", SHA_256, None)
    after.publish({(SHA_256, f"user-{at}"): each for at, each in enumerate(others)}, [gone])
    assert [challenge(before, each) for each in names] == [challenge(after, each) for each in names]


def test_a_password_of_nobody_takes_as_long_as_that_of_a_user() -> None:
    image = image_of(made(b"salt", 16_384))
    exchange = PlainExchange(image.find, RightPasswords(), secret=b"x", looks=image.looks)
    assert exchange._fake("nobody").iterations == 16_384
    assert exchange._fake("nobody").mechanism is SHA_256


def test_there_is_a_limit_to_the_looks() -> None:
    image = image_of(*(made(b"salt", 4096 + at) for at in range(2 * SALT_LOOKS_MAX)))
    assert len(image.looks(SHA_256)) == SALT_LOOKS_MAX
    everything = {(SHA_256, f"user-{at}"): None for at in range(2 * SALT_LOOKS_MAX)}
    image.publish({}, [CredentialChanged(user, its, None) for its, user in everything])
    assert image.looks(SHA_256) == {}


def test_users_of_whom_none_is_there_look_as_before() -> None:
    """As those of other brokers, also of a release before, while they restart one by one."""
    credential = fake_credential(SHA_512, "nobody", b"x", {})
    assert (credential.salt, credential.iterations) == (b"3w0iqm2fy7vp2aa7nsg3ng1045", 4096)
    assert look_of(derive(SHA_512, "p", 4096, credential.salt)) == look_of(credential)
