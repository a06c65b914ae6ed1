"""Only who knows the cluster's secret is let in, and nothing recorded can be used again."""

import pytest

from fairlead_broker.peer_check import MECHANISM, PeerCheck, PeerProof, PeerProofError

SECRET = b"the secret of a cluster"


def exchange(check: PeerCheck, proof: PeerProof) -> None:
    assert check.choose(MECHANISM)
    assert check.receive(proof.answer(check.receive(proof.nonce))) == b""


def test_who_knows_the_secret_is_let_in() -> None:
    check = PeerCheck(SECRET)
    exchange(check, PeerProof(SECRET))
    assert check.is_passed


def test_a_caller_finds_out_that_the_listener_does_not_know_the_secret() -> None:
    check, proof = PeerCheck(b"another secret"), PeerProof(SECRET)
    check.choose(MECHANISM)
    with pytest.raises(PeerProofError):
        proof.answer(check.receive(proof.nonce))


def test_a_wrong_proof_is_refused_and_is_the_only_try() -> None:
    check, proof = PeerCheck(SECRET), PeerProof(SECRET)
    check.choose(MECHANISM)
    right = proof.answer(check.receive(proof.nonce))
    with pytest.raises(PeerProofError):
        check.receive(bytes(32))
    with pytest.raises(PeerProofError):
        check.receive(right)
    assert not check.is_passed


def test_a_recorded_exchange_is_worth_nothing_on_another_connection() -> None:
    recorded = PeerProof(SECRET)
    check = PeerCheck(SECRET)
    check.choose(MECHANISM)
    answer = recorded.answer(check.receive(recorded.nonce))
    other = PeerCheck(SECRET)
    other.choose(MECHANISM)
    other.receive(recorded.nonce)
    with pytest.raises(PeerProofError):
        other.receive(answer)


def test_the_listeners_own_proof_cannot_be_sent_back() -> None:
    check, proof = PeerCheck(SECRET), PeerProof(SECRET)
    check.choose(MECHANISM)
    reflected = check.receive(proof.nonce)[32:]
    with pytest.raises(PeerProofError):
        check.receive(reflected)


@pytest.mark.parametrize("token", [b"", b"short", bytes(33)])
def test_a_nonce_has_its_size(token: bytes) -> None:
    check = PeerCheck(SECRET)
    check.choose(MECHANISM)
    with pytest.raises(PeerProofError):
        check.receive(token)


def test_without_a_mechanism_or_a_secret_nobody_passes() -> None:
    with pytest.raises(PeerProofError):
        PeerCheck(SECRET).receive(bytes(32))
    assert not PeerCheck(SECRET).choose("PLAIN")
    unset = PeerCheck(b"")
    unset.choose(MECHANISM)
    with pytest.raises(PeerProofError):
        unset.receive(bytes(32))
