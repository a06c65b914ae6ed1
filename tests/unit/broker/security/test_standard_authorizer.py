"""What the authorizer remembers, forgets and tells."""

from __future__ import annotations

import json
import logging
import time

import pytest

from fairlead_broker.authorization import ANONYMOUS, Principal
from fairlead_broker.limits import (
    AUTHORIZER_MEMO_MAX,
    AUTHORIZER_MEMO_NAME_LENGTH_MAX,
    DENIALS_LOGGED_PER_WINDOW,
    DENIALS_WINDOW_MS,
)
from fairlead_broker.security.denials import AUDIT_LOGGER, DenialLog
from fairlead_broker.security.standard_authorizer import StandardAuthorizer
from fairlead_model.cluster import AclChanged
from fairlead_model.security.acl import AclBinding, Operation, PatternType, Permission, ResourceType
from fairlead_model.security.acl_index import AclDecision, comparable_host

ALICE = Principal("User", "alice")
TOPIC = ResourceType.TOPIC
READ = AclBinding(
    TOPIC, PatternType.LITERAL, "t", "User:alice", "*", Operation.READ, Permission.ALLOW
)
QUESTION = (ALICE, "127.0.0.1", Operation.READ, TOPIC, "t")


@pytest.fixture
def authorizer() -> StandardAuthorizer:
    made = StandardAuthorizer({"User:root"}, allows_without_rules=False)
    made.load([READ])
    return made


def test_nobody_is_allowed_anything_before_the_rules_are_known() -> None:
    """I14."""
    authorizer = StandardAuthorizer({"User:root"}, allows_without_rules=True)
    for who in (ALICE, Principal("User", "root"), ANONYMOUS):
        question = (who, "127.0.0.1", Operation.READ, TOPIC, "t")
        assert not authorizer.is_allowed(*question)
        assert not authorizer.would_allow(*question)
        assert not authorizer.is_allowed_for_some(who, "127.0.0.1", Operation.READ, TOPIC)
    authorizer.load([])
    assert authorizer.is_allowed(*QUESTION)
    assert authorizer.is_allowed(Principal("User", "root"), "h", Operation.READ, TOPIC, "t")


def test_long_names_are_judged_and_not_remembered(authorizer: StandardAuthorizer) -> None:
    longest = "n" * AUTHORIZER_MEMO_NAME_LENGTH_MAX
    for who, is_allowed in ((ALICE, False), (Principal("User", "root"), True)):
        for name in (longest, longest + "n"):
            question = (who, "127.0.0.1", Operation.DESCRIBE, ResourceType.GROUP, name)
            assert authorizer.is_allowed(*question) is is_allowed
            assert authorizer.would_allow(*question) is is_allowed
    assert {question[-1] for question in authorizer._memo} == {longest}


def test_what_was_remembered_is_forgotten_when_a_rule_changes(
    authorizer: StandardAuthorizer,
) -> None:
    """I13."""
    assert authorizer.is_allowed(*QUESTION)
    assert authorizer.is_allowed_for_some(ALICE, "h", Operation.READ, TOPIC)
    authorizer.change([AclChanged(READ, is_removed=True)])
    assert not authorizer.is_allowed(*QUESTION)
    assert not authorizer.is_allowed_for_some(ALICE, "h", Operation.READ, TOPIC)
    authorizer.change([AclChanged(READ)])
    assert authorizer.is_allowed(*QUESTION)


def test_super_users_are_compared_with_their_type_and_case(authorizer: StandardAuthorizer) -> None:
    asked = ("127.0.0.1", Operation.ALTER, ResourceType.CLUSTER, "kafka-cluster")
    assert authorizer.is_allowed(Principal("User", "root"), *asked)
    for name in ("Root", "User:root", "root ", ""):
        assert not authorizer.is_allowed(Principal("User", name), *asked)
    authorizer.change(
        [AclChanged(READ._replace(principal="User:*", name="*", permission=Permission.DENY))]
    )
    assert authorizer.is_allowed(Principal("User", "root"), "h", Operation.READ, TOPIC, "t")


def test_made_up_names_take_no_more_than_their_share_of_memory(
    authorizer: StandardAuthorizer,
) -> None:
    for number in range(AUTHORIZER_MEMO_MAX + 10):
        authorizer.would_allow(ALICE, "h", Operation.READ, TOPIC, f"t{number}")
        authorizer.is_allowed_for_some(ALICE, f"h{number}", Operation.READ, TOPIC)
    assert len(authorizer._memo) <= AUTHORIZER_MEMO_MAX
    assert len(authorizer._memo_by_type) <= AUTHORIZER_MEMO_MAX
    assert authorizer.is_allowed(*QUESTION)


def test_only_what_was_asked_for_by_name_is_a_denial(authorizer: StandardAuthorizer) -> None:
    heard: list[tuple[object, AclDecision]] = []
    authorizer.on_denied = lambda question, decision: heard.append((question, decision))
    secret = (ALICE, "127.0.0.1", Operation.WRITE, TOPIC, "t")
    assert not authorizer.would_allow(*secret)
    assert authorizer.is_allowed(*QUESTION)
    assert heard == []
    for _ in range(2):
        assert not authorizer.is_allowed(*secret)
    assert heard == [(secret, AclDecision(False, None, has_rules=True))] * 2


@pytest.mark.parametrize(
    ("rule", "client", "is_same"),
    [
        ("::1", "0:0:0:0:0:0:0:1", True),
        ("0:0:0:0:0:0:0:1", "::1", True),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("localhost", "127.0.0.1", False),
        ("10.0.0.0/8", "10.0.0.1", False),
        ("*", "10.0.0.1", True),
    ],
)
def test_hosts_are_compared_as_addresses(rule: str, client: str, is_same: bool) -> None:
    authorizer = StandardAuthorizer((), allows_without_rules=False)
    authorizer.load([READ._replace(host=rule)])
    assert authorizer.is_allowed(ALICE, client, Operation.READ, TOPIC, "t") is is_same
    assert comparable_host(comparable_host(rule)) == comparable_host(rule)


def test_the_audit_log_tells_each_denial_once_and_counts_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0]
    log = DenialLog(lambda: now[0])
    deny = READ._replace(permission=Permission.DENY)
    with caplog.at_level(logging.WARNING, AUDIT_LOGGER):
        for _ in range(3):
            log.note(QUESTION, AclDecision(False, deny, has_rules=True))
        strange = (Principal("User", 'a"\n' + "x" * 1000), "h", Operation.READ, TOPIC, "n\r\n")
        log.note(strange, AclDecision(False, None, has_rules=False))
        for number in range(2 * DENIALS_LOGGED_PER_WINDOW):
            log.note(
                (ALICE, "h", Operation.READ, TOPIC, str(number)), AclDecision(False, None, True)
            )
        assert len(caplog.messages) == DENIALS_LOGGED_PER_WINDOW
        now[0] += DENIALS_WINDOW_MS
        log.note(QUESTION, AclDecision(False, None, has_rules=True))
    assert all("\n" not in message and len(message) < 1200 for message in caplog.messages)
    first, second, *_, last = map(json.loads, caplog.messages)
    assert first == {
        "event": "denied",
        "principal": "User:alice",
        "host": "127.0.0.1",
        "operation": "READ",
        "resourceType": "TOPIC",
        "resourceName": "t",
        "because": "DENY User:alice READ TOPIC t",
    }
    assert second["resourceName"] == "n\r\n"
    assert (second["leftOut"], last["leftOut"]) == (2, DENIALS_LOGGED_PER_WINDOW + 2)


@pytest.mark.parametrize("by", ["user", "host"])
def test_rules_of_others_cost_nothing(by: str) -> None:
    """A request asks for 10,000 topics: with rules of many users it kept the loop for a minute."""

    def of_other(number: int) -> AclBinding:
        if by == "user":
            return READ._replace(name="*", principal=f"User:u{number}")
        host = f"10.0.{number >> 8}.{number & 255}"
        return READ._replace(name="*", principal="User:*", host=host)

    def spent_s(others: int) -> float:
        authorizer = StandardAuthorizer((), allows_without_rules=False)
        authorizer.load(map(of_other, range(others)))
        authorizer.on_denied = lambda question, decision: None
        began_s = time.process_time()
        for number in range(2_000):
            question = (ALICE, "127.0.0.1", Operation.DESCRIBE, TOPIC, f"t{number}")
            assert not authorizer.is_allowed(*question)
        return time.process_time() - began_s

    few_s = min(spent_s(10) for _ in range(3))
    assert spent_s(5_000) < 20 * few_s
