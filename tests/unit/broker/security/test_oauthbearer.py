"""Tokens: whose are good, and what a client may say around one."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tokens import AUDIENCE, ISSUER, TokenIssuer, signed_with_public_key, unsigned

from fairlead_broker.security.sasl.exchange import Answer, Login, LoginError, Work
from fairlead_broker.security.sasl.oauthbearer import OAuthBearerExchange, TokenError
from fairlead_broker.security.sasl.sasl_settings import OAuthSettings
from fairlead_broker.security.sasl.token_judge import JwtJudge, KeyId, TokenKey, read_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

ISSUERS = TokenIssuer()


class Keys:
    """The keys of a test, and how often somebody wanted others."""

    def __init__(self) -> None:
        self.keys: Mapping[KeyId, TokenKey] = read_keys(ISSUERS.document())
        self.wanted = 0

    def want(self) -> None:
        self.wanted += 1


@pytest.fixture
def keys() -> Keys:
    return Keys()


@pytest.fixture
def judge(keys: Keys) -> JwtJudge:
    settings = OAuthSettings(
        jwks_url="file:///none",
        refresh_ms=1000,
        retry_backoff_ms=1,
        retry_backoff_max_ms=1,
        clock_skew_s=30,
        issuer=ISSUER,
        audiences=("other", AUDIENCE),
        sub_claim="sub",
    )
    return JwtJudge(settings, keys)


def test_keys_that_are_for_signatures() -> None:
    assert set(read_keys(ISSUERS.document())) == {"k1", "k2"}
    unusable: tuple[Any, ...] = (
        [],
        {},
        {"keys": 3},
        "x",
        None,
    )
    for bad in unusable:
        with pytest.raises(ValueError, match="key"):
            read_keys(bad)
    documents: tuple[Any, ...] = ({"keys": []}, {"keys": [{"kty": "RSA"}]})
    for emptied in documents:
        assert read_keys(emptied) == {}


def test_one_odd_key_does_not_hide_the_others() -> None:
    """The reader would end over anything but a ValueError, and keys would never be read again."""
    document = ISSUERS.document()
    algorithms: tuple[Any, ...] = (["RS256"], {}, 3, "none")
    odd = [dict(key, kid="k3", alg=bad) for key in document["keys"][:2] for bad in algorithms]
    assert set(read_keys({"keys": [*odd, None, *document["keys"]]})) == {"k1", "k2"}


def test_a_key_whose_operations_are_others_verifies_no_token() -> None:
    """`use` and `key_ops` say the same in two ways (RFC 7517, sections 4.2 and 4.3)."""
    rsa = {name: text for name, text in ISSUERS.document()["keys"][0].items() if name != "use"}
    others: tuple[Any, ...] = (["encrypt"], [], "verify", {"verify": 1}, 3, [["verify"]])
    for operations in others:
        assert read_keys({"keys": [{**rsa, "key_ops": operations}]}) == {}
    fitting: tuple[Any, ...] = (["verify"], ["sign", "verify"], None)
    for operations in fitting:
        assert set(read_keys({"keys": [{**rsa, "key_ops": operations}]})) == {"k1"}


@pytest.mark.parametrize(
    "make",
    [
        ISSUERS.sign,
        lambda: ISSUERS.sign(algorithm="ES256", kid="k2"),
        # Without the id of a key.
        lambda: ISSUERS.sign(kid=None),
        lambda: ISSUERS.sign(algorithm="ES256", kid=None),
        lambda: ISSUERS.sign(aud=["x", AUDIENCE]),
        lambda: ISSUERS.sign(exp=int(time.time()) - 10),
        lambda: ISSUERS.sign(headers={"jku": "https://evil.example", "jwk": {"kty": "oct"}}),
    ],
)
def test_tokens_that_are_good(judge: JwtJudge, make: Callable[[], str]) -> None:
    login = judge.judge(make())
    assert login.user == "alice"
    assert login.expires_at_ms is not None and login.expires_at_ms > time.time() * 1000 - 60_000


OTHER = TokenIssuer()
PUBLIC = ISSUERS.rsa.public_key().public_bytes(
    serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
)


@pytest.mark.parametrize(
    "make",
    [
        lambda: "",
        lambda: "a.b",
        lambda: "a.b.c",
        lambda: "a.b.c.d",
        lambda: unsigned(ISSUERS.claims()),
        lambda: unsigned(ISSUERS.claims()) + "x",
        OTHER.sign,
        # The public key as a shared secret, and an algorithm that its key is not meant for.
        lambda: signed_with_public_key(PUBLIC, ISSUERS.claims()),
        lambda: ISSUERS.sign(algorithm="PS256"),
        lambda: ISSUERS.sign(algorithm="ES256", kid="k1"),
        lambda: OTHER.sign(kid=None),
        lambda: ISSUERS.sign(
            algorithm="ES384", kid=None, key=ec.generate_private_key(ec.SECP384R1())
        ),
        lambda: unsigned(ISSUERS.claims(), kid=None),
        lambda: unsigned(ISSUERS.claims(), kid=None) + "x",
        lambda: signed_with_public_key(PUBLIC, ISSUERS.claims(), kid=None),
        lambda: ISSUERS.sign(kid="0"),
        lambda: signed_with_public_key(PUBLIC, ISSUERS.claims(), kid=None, algorithm=["RS256"]),
        lambda: ISSUERS.sign(kid="enc"),
        lambda: ISSUERS.sign(kid="x" * 2000),
        lambda: ISSUERS.sign(headers={"crit": ["b64"], "b64": False}),
        lambda: ISSUERS.sign(iss="https://issuer.example/realm/other"),
        lambda: ISSUERS.sign(iss=ISSUER[:-1]),
        lambda: ISSUERS.sign(iss=None),
        lambda: ISSUERS.sign(aud="kafk"),
        lambda: ISSUERS.sign(aud=None),
        lambda: ISSUERS.sign(exp=int(time.time()) - 60),
        lambda: ISSUERS.sign(exp=None),
        lambda: ISSUERS.sign(exp=10**30),
        lambda: ISSUERS.sign(iat=None),
        lambda: ISSUERS.sign(iat=int(time.time()) + 600),
        lambda: ISSUERS.sign(nbf=int(time.time()) + 600),
        lambda: ISSUERS.sign(sub=None),
        lambda: ISSUERS.sign(sub=""),
        lambda: ISSUERS.sign(sub="*"),
        lambda: ISSUERS.sign(sub="a\nb"),
        lambda: ISSUERS.sign(sub=["alice"]),
    ],
)
def test_tokens_that_are_worth_nothing(judge: JwtJudge, make: Callable[[], str]) -> None:
    token = make()
    with pytest.raises(TokenError):
        judge.judge(token)


def test_a_key_that_is_not_known_is_wanted(judge: JwtJudge, keys: Keys) -> None:
    with pytest.raises(TokenError, match="'k9' is not known"):
        judge.judge(ISSUERS.sign(kid="k9"))
    assert keys.wanted == 1


def test_keys_without_ids_verify_tokens_that_name_none(judge: JwtJudge, keys: Keys) -> None:
    nameless = [
        {name: text for name, text in entry.items() if name != "kid"}
        for entry in ISSUERS.document()["keys"][:2]
    ]
    keys.keys = read_keys({"keys": nameless})
    assert judge.judge(ISSUERS.sign(kid=None)).user == "alice"
    assert judge.judge(ISSUERS.sign(algorithm="ES256", kid=None)).user == "alice"
    for kid in ("k1", "", "0", "None"):
        with pytest.raises(TokenError, match="is not known"):
            judge.judge(ISSUERS.sign(kid=kid))
    keys.keys = {}
    wanted = keys.wanted
    with pytest.raises(TokenError, match="none is for its algorithm"):
        judge.judge(ISSUERS.sign(kid=None))
    assert keys.wanted == wanted + 1


def message(token: str, *, header: bytes = b"n,,", more: bytes = b"") -> bytes:
    return header + b"\x01auth=Bearer " + token.encode() + b"\x01" + more + b"\x01"


def run(exchange: OAuthBearerExchange, token: bytes) -> Answer:
    step = exchange.receive(token)
    assert isinstance(step, Work)
    return step.run()


@pytest.mark.parametrize(
    ("header", "more"),
    [(b"n,,", b""), (b"n,a=alice,", b""), (b"n,,", b"traceId=7\x01cluster=a b\x01")],
)
def test_a_login(judge: JwtJudge, header: bytes, more: bytes) -> None:
    answer = run(OAuthBearerExchange(judge), message(ISSUERS.sign(), header=header, more=more))
    assert answer.token == b""
    assert isinstance(answer.login, Login) and answer.login.user == "alice"


@pytest.mark.parametrize(
    "make",
    [lambda: message(OTHER.sign()), lambda: message(ISSUERS.sign(), header=b"n,a=bob,")],
)
def test_a_refusal_is_said_in_json_and_acknowledged(
    judge: JwtJudge, make: Callable[[], bytes]
) -> None:
    exchange = OAuthBearerExchange(judge)
    assert run(exchange, make()) == Answer(b'{"status":"invalid_token"}', is_refusal=True)
    with pytest.raises(LoginError, match="a token that is refused"):
        exchange.receive(b"\x01")


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"y,,\x01auth=Bearer x\x01\x01",
        b"n,b=alice,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer x\x01auth=Bearer y\x01\x01",
        b"n,,\x01auth=Bearer x\x01b4d=1\x01\x01",
        b"n,,\x01auth=Bearer x\x01bad\x01\x01",
        b"n,,\x01auth=Bearer x",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,,\x01auth=Bearer " + b"x" * 20_000 + b"\x01\x01",
    ],
)
def test_messages_that_cannot_be_read(judge: JwtJudge, bad: bytes) -> None:
    with pytest.raises(LoginError):
        OAuthBearerExchange(judge).receive(bad)
