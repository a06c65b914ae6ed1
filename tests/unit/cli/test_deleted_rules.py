"""`fairlead acl delete` tells a rule that the cluster keeps from one that is gone."""

import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from answering_broker import answering_broker

from fairlead_bench.peers.own_ports import take_ports
from fairlead_cli.client.acls import delete_rules
from fairlead_cli.errors import CliError, NoAnswerError
from fairlead_cli.wire_exchange import LENGTH, receive_exactly
from fairlead_model.security.acl import AclBinding, Operation, PatternType, Permission, ResourceType
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)

RULE = AclBinding(
    *(ResourceType.TOPIC, PatternType.LITERAL, "orders", "User:anna", "*"),
    *(Operation.READ, Permission.ALLOW),
)


def delete(*results: DeleteAclsFilterResult, before: tuple[int, ...] = ()) -> list[AclBinding]:
    """Remove a rule; Metadata names first the brokers at the ports `before`."""
    response = DeleteAclsResponse(filter_results=list(results))
    with answering_broker({ApiKey.DELETE_ACLS: response}) as port:
        brokers = {
            number: SimpleNamespace(id=number, host="127.0.0.1", port=each)
            for number, each in enumerate((*before, port), start=1)
        }
        metadata = SimpleNamespace(brokers=brokers, controller_id=1)
        admin: Any = SimpleNamespace(list_topics=lambda **_: metadata)
        return delete_rules(admin, [RULE])


def matching(code: ErrorCode = ErrorCode.NONE, message: str | None = None) -> Any:
    return DeleteAclsMatchingAcl(code, message, 2, "orders", 3, "User:anna", "*", 3, 3)


def test_a_rule_that_the_cluster_keeps_is_not_told_as_removed() -> None:
    """That of a principal that a User resource declares: its right stays."""
    kept = matching(ErrorCode.POLICY_VIOLATION, "the User anna declares it")
    with pytest.raises(CliError, match=r"anna.*: the User anna declares it .POLICY_VIOLATION."):
        delete(DeleteAclsFilterResult(matching_acls=[kept]))


def test_rules_that_are_gone_are_told() -> None:
    assert delete(DeleteAclsFilterResult(matching_acls=[matching()])) == [RULE]
    assert delete(DeleteAclsFilterResult()) == []


def test_a_broker_that_died_since_it_was_found_is_passed_over() -> None:
    (dead,) = take_ports(1)
    told = DeleteAclsFilterResult(matching_acls=[matching()])
    assert delete(told, before=(dead,)) == [RULE]


def test_a_request_that_was_sent_is_not_sent_to_another_broker() -> None:
    """The first may have removed the rule, and the second would find none."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        thread = threading.Thread(target=hang_up, args=(server,))
        thread.start()
        with pytest.raises(NoAnswerError, match=f"127.0.0.1:{port} did not answer DeleteAcls"):
            delete(DeleteAclsFilterResult(), before=(port,))
        thread.join(30)


def hang_up(server: socket.socket) -> None:
    """Read a request, and close without an answer."""
    connection, _ = server.accept()
    with connection:
        (size,) = LENGTH.unpack(receive_exactly(connection, LENGTH.size))
        receive_exactly(connection, size)


def test_a_refusal_is_told() -> None:
    refused = DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, "this broker authorizes nothing")
    with pytest.raises(CliError, match=r"this broker authorizes nothing .SECURITY"):
        delete(refused)
