"""Kafka's error codes, and the exceptions of the wire layer.

A `KafkaError` fills one slot of a reply. A protocol error never does: the code that catches it
closes the connection and logs the reason.
"""

from enum import IntEnum
from typing import Self


class ErrorCode(IntEnum):
    """Every error code of Kafka 4.3.

    `retriable` is what Java clients do with the code: True means that they try again by
    themselves, so an answer with the wrong code is a bug that users see.
    """

    retriable: bool
    description: str

    def __new__(cls, code: int, retriable: bool = False, description: str = "") -> Self:
        # The defaults are for the types of `ErrorCode(code)`, which only looks up a member.
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.description = description
        return member

    UNKNOWN_SERVER_ERROR = -1, False, "The broker failed in a way it did not foresee."
    NONE = 0, False, "No error."
    OFFSET_OUT_OF_RANGE = 1, False, "The offset lies outside the log."
    CORRUPT_MESSAGE = 2, True, "A record batch fails its checksum or contradicts its own size."
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "This broker knows no such topic or partition."
    INVALID_FETCH_SIZE = 4, False, "The fetch size is not usable."
    LEADER_NOT_AVAILABLE = 5, True, "The partition has no leader at the moment."
    NOT_LEADER_OR_FOLLOWER = 6, True, "This broker does not lead (or hold) the partition."
    REQUEST_TIMED_OUT = 7, True, "The request did not complete in its time."
    BROKER_NOT_AVAILABLE = 8, False, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, True, "The wanted replica is not available."
    MESSAGE_TOO_LARGE = 10, False, "A batch exceeds max.message.bytes."
    STALE_CONTROLLER_EPOCH = 11, False, "The controller has moved on to a later epoch."
    OFFSET_METADATA_TOO_LARGE = 12, False, "The metadata of a committed offset is too long."
    NETWORK_EXCEPTION = 13, True, "The connection closed before the reply came."
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The coordinator is still reading its state."
    COORDINATOR_NOT_AVAILABLE = 15, True, "There is no coordinator yet."
    NOT_COORDINATOR = 16, True, "Another broker is the coordinator."
    INVALID_TOPIC_EXCEPTION = 17, False, "The topic name is not legal, or the topic not usable so."
    RECORD_LIST_TOO_LARGE = 18, False, "A batch exceeds the segment size."
    NOT_ENOUGH_REPLICAS = 19, True, "Fewer replicas in sync than required; nothing was written."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, True, "Written, but too few replicas in sync."
    INVALID_REQUIRED_ACKS = 21, False, "acks must be -1, 0 or 1."
    ILLEGAL_GENERATION = 22, False, "The group has moved to another generation."
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "The members of the group share no protocol."
    INVALID_GROUP_ID = 24, False, "The group id is not legal."
    UNKNOWN_MEMBER_ID = 25, False, "The group has no such member."
    INVALID_SESSION_TIMEOUT = 26, False, "The session timeout lies outside the allowed range."
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing: join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The committed offset data is too large."
    TOPIC_AUTHORIZATION_FAILED = 29, False, "The principal may not do this to the topic."
    GROUP_AUTHORIZATION_FAILED = 30, False, "The principal may not do this to the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "The principal may not do this to the cluster."
    INVALID_TIMESTAMP = 32, False, "A record's timestamp is too far from the broker's clock."
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The SASL mechanism is not offered here."
    ILLEGAL_SASL_STATE = 34, False, "This request does not belong here in the SASL exchange."
    UNSUPPORTED_VERSION = 35, False, "The broker does not serve this version of the API."
    TOPIC_ALREADY_EXISTS = 36, False, "A topic of this name exists."
    INVALID_PARTITIONS = 37, False, "The partition count is not acceptable."
    INVALID_REPLICATION_FACTOR = 38, False, "There are not that many brokers, or it is below 1."
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The replica assignment is not acceptable."
    INVALID_CONFIG = 40, False, "A config name or value is not acceptable."
    NOT_CONTROLLER = 41, True, "This is not the controller."
    INVALID_REQUEST = 42, False, "The request contradicts itself or the protocol."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "The record format cannot serve this request."
    POLICY_VIOLATION = 44, False, "A policy of this cluster forbids it."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "A producer's sequence numbers leave a gap."
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "The producer's batch was written long before."
    INVALID_PRODUCER_EPOCH = 47, False, "The producer's epoch is an old one."
    INVALID_TXN_STATE = 48, False, "The transaction is not in a state that allows this."
    INVALID_PRODUCER_ID_MAPPING = 49, False, "The producer id isn't that of the transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, False, "The transaction timeout exceeds the broker's maximum."
    CONCURRENT_TRANSACTIONS = 51, True, "The previous transaction is still being completed."
    TRANSACTION_COORDINATOR_FENCED = 52, False, "The marker is of an older coordinator epoch."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "The transactional id isn't allowed here."
    SECURITY_DISABLED = 54, False, "There is no authorizer."
    OPERATION_NOT_ATTEMPTED = 55, False, "Not tried, because another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, True, "The disk of this replica failed."
    LOG_DIR_NOT_FOUND = 57, False, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, False, "Authentication failed."
    UNKNOWN_PRODUCER_ID = 59, False, "The broker remembers nothing of this producer."
    REASSIGNMENT_IN_PROGRESS = 60, False, "The partition is being reassigned."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "Delegation tokens are off."
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "The principal neither owns nor may renew it."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, False, "Not on this kind of connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "The principal may not use the token."
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, False, "This type of principal is not known."
    NON_EMPTY_GROUP = 68, False, "The group has members."
    GROUP_ID_NOT_FOUND = 69, False, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "The broker has no such fetch session."
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The fetch session is at another epoch."
    LISTENER_NOT_FOUND = 72, True, "The leader has no listener of that name."
    TOPIC_DELETION_DISABLED = 73, False, "Topics may not be deleted."
    FENCED_LEADER_EPOCH = 74, True, "The asker's leader epoch is older than the broker's."
    UNKNOWN_LEADER_EPOCH = 75, True, "The asker's leader epoch is newer than the broker's."
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "The codec does not go with this request version."
    STALE_BROKER_EPOCH = 77, False, "The broker has registered anew since."
    OFFSET_NOT_AVAILABLE = 78, True, "The new leader does not know its high watermark yet."
    MEMBER_ID_REQUIRED = 79, False, "Join again with the member id of this reply."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "The preferred leader is not available."
    GROUP_MAX_SIZE_REACHED = 81, False, "The group is full."
    FENCED_INSTANCE_ID = 82, False, "Another member has taken over this static instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "No replica may become leader now."
    ELECTION_NOT_NEEDED = 84, True, "The partition has the leader it should have."
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "No reassignment is under way."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "The group is reading this topic."
    INVALID_RECORD = 87, False, "A record or batch breaks the broker's rules."
    UNSTABLE_OFFSET_COMMIT = 88, True, "A transaction holds back the committed offset."
    THROTTLING_QUOTA_EXCEEDED = 89, True, "A quota is used up."
    PRODUCER_FENCED = 90, False, "A newer producer has taken over the transactional id."
    RESOURCE_NOT_FOUND = 91, False, "There is no such resource."
    DUPLICATE_RESOURCE = 92, False, "The request names a resource twice."
    UNACCEPTABLE_CREDENTIAL = 93, False, "The credential does not meet the rules."
    INCONSISTENT_VOTER_SET = 94, False, "One of the two is not among the expected voters."
    INVALID_UPDATE_VERSION = 95, False, "The record has moved on since that version."
    FEATURE_UPDATE_FAILED = 96, False, "The finalized features could not be changed."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "A forwarded principal could not be read."
    SNAPSHOT_NOT_FOUND = 98, False, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, False, "The position lies outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, True, "This broker knows no topic of this id."
    DUPLICATE_BROKER_REGISTRATION = 101, False, "A live broker holds this broker id."
    BROKER_ID_NOT_REGISTERED = 102, False, "No broker of this id is registered."
    INCONSISTENT_TOPIC_ID = 103, True, "The log belongs to another topic id."
    INCONSISTENT_CLUSTER_ID = 104, False, "The request is meant for another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "The session mixes topic names and topic ids."
    INELIGIBLE_REPLICA = 107, False, "A member of the proposed ISR may not be in it."
    NEW_LEADER_ELECTED = 108, False, "The change was made and brought another leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "The offset is only in tiered storage."
    FENCED_MEMBER_EPOCH = 110, False, "The member was fenced: give up all partitions, join again."
    UNRELEASED_INSTANCE_ID = 111, False, "Another member still holds the instance id."
    UNSUPPORTED_ASSIGNOR = 112, False, "The group does not support this assignor."
    STALE_MEMBER_EPOCH = 113, False, "The member epoch is old: heartbeat, then try again."
    MISMATCHED_ENDPOINT_TYPE = 114, False, "The request went to the wrong kind of endpoint."
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "This kind of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, False, "There is no such controller."
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "The telemetry subscription is not a current one."
    TELEMETRY_TOO_LARGE = 118, False, "The telemetry payload is too large."
    INVALID_REGISTRATION = 119, False, "The controller refuses the broker's registration."
    TRANSACTION_ABORTABLE = 120, False, "The transaction must be aborted; the producer may go on."
    INVALID_RECORD_STATE = 121, False, "The record cannot be acknowledged in its state."
    SHARE_SESSION_NOT_FOUND = 122, True, "The broker has no such share session."
    INVALID_SHARE_SESSION_EPOCH = 123, True, "The share session is at another epoch."
    FENCED_STATE_EPOCH = 124, False, "The share group's state is at another epoch."
    INVALID_VOTER_KEY = 125, False, "The voter's key is not that of the replica."
    DUPLICATE_VOTER = 126, False, "The voter is one already."
    VOTER_NOT_FOUND = 127, False, "There is no such voter."
    INVALID_REGULAR_EXPRESSION = 128, False, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, False, "The client should start over from its bootstrap servers."
    STREAMS_INVALID_TOPOLOGY = 130, False, "The streams topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "The topology's epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, False, "The topology's epoch is an old one."
    SHARE_SESSION_LIMIT_REACHED = 133, True, "The broker has no room for another share session."


class KafkaError(Exception):
    """A refusal that is sent to the peer: one slot of a reply.

    `message` is sent if the reply has a field for text; its default is the code's description.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code = code
        self.message = code.description if message is None else message
        super().__init__(f"{code.name}: {self.message}")


class RemoteProtocolError(Exception):
    """The peer sent bytes that break the protocol: close the connection and log the reason."""


class LocalProtocolError(Exception):
    """The process tried to encode what the protocol cannot carry: a bug of the process itself."""
