"""What a client of ours tells a broker that wants to learn its password."""

import pytest

from fairlead_wire.sasl_login import LoginRefusedError, begin_login


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(
    ("iterations", "has_proof"),
    [("1", False), ("4095", False), ("4096", True), ("16384", True), ("1048577", False)],
)
def test_a_proof_is_given_only_for_enough_iterations(
    mechanism: str, iterations: str, has_proof: bool
) -> None:
    """With few of them, whoever reads a proof tries millions of passwords a second on it."""
    login = begin_login(mechanism, "alice", "secret")
    nonce = next(login).partition(b",r=")[2]
    challenge = b"r=%bserver,s=c2FsdA==,i=%b" % (nonce, iterations.encode())
    if has_proof:
        assert b",p=" in login.send(challenge)
        return
    with pytest.raises(LoginRefusedError, match="iterations"):
        login.send(challenge)
