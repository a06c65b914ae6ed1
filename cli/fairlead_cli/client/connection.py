"""Build the librdkafka clients of the CLI, and explain their errors.

All settings are here: keys are partitioned as in Java clients (murmur2), nothing is committed
automatically, and librdkafka's own log lines do not reach the terminal.
"""

from __future__ import annotations

import logging
import shlex
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from fairlead_cli.advice import cluster_arguments, data_directory
from fairlead_cli.client.access import client_settings, configured_file, login_settings
from fairlead_cli.client.answering import look_up
from fairlead_cli.client.target import parse_addresses
from fairlead_cli.client_id import CLIENT_ID
from fairlead_cli.errors import CliError, ForbiddenError, InputError, NoAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient, ClusterMetadata, DescribeClusterResult

REQUEST_TIMEOUT_S = 15.0
METADATA_MAX_AGE_MS = 5_000
CONNECTION_SETUP_TIMEOUT_MS = 3_000
RECORD_BYTES_MAX = 100_000_000
TOPIC_NAME_CHARACTERS_MAX = 249
# The verb commits offsets, of records that it has written; librdkafka commits nothing by itself.
READING = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "check.crcs": True,
    "fetch.wait.max.ms": 100,
}
READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"
Result = TypeVar("Result")

HINTS = {
    "TOPIC_ALREADY_EXISTS": "See it with:  fairlead topic describe {name}{cluster}",
    "INVALID_REPLICATION_FACTOR": "Leave --replication-factor out to get the cluster's default.",
    "INVALID_PARTITIONS": "The number of partitions can only grow.",
    "INVALID_CONFIG": "See what there is:  fairlead config list",
    "BAD_MSG": "A batch is damaged. Look for it where the brokers' files are:\n"
    "  fairlead log dump {data} --verify",
    "UNKNOWN_TOPIC_OR_PART": "See what there is:  fairlead topic list{cluster}",
    "INCONSISTENT_GROUP_PROTOCOL": "Its members use another assignor or protocol. Try "
    "--assignor range, or see:  fairlead group describe {name}{cluster}",
    "FENCED": "Another producer has begun with this transactional id since: run one at a time.",
    "FENCED_INSTANCE_ID": "Another process has joined under this --instance-id: use another.",
    "NON_EMPTY_GROUP": "See who is in it:  fairlead group describe {name} --members{cluster}",
    "REQUEST_TIMED_OUT": "Try again in a moment. See who runs:  fairlead status{cluster}",
    "MSG_TIMED_OUT": "No leader took them in time. See who leads, and who is in sync:\n"
    "  fairlead topic describe {name}{cluster}",
    "MSG_SIZE_TOO_LARGE": "Let the topic take larger ones, here 10 MB:\n"
    "  fairlead topic alter {name} --config max.message.bytes=10485760{cluster}",
}
KINDS = {"_TRANSPORT": NoAnswerError, "TOPIC_AUTHORIZATION_FAILED": ForbiddenError}
"""Errors that some verbs handle."""


def quiet_logger() -> logging.Logger:
    """Return a logger that drops all: a verb reports the connection errors that affect it."""
    logger = logging.getLogger("fairlead_cli.librdkafka")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger


def build_admin(bootstrap: str) -> AdminClient:
    """Return a client for topics and settings."""
    from confluent_kafka.admin import AdminClient

    with refused_settings():
        return AdminClient(base_settings(bootstrap), logger=quiet_logger())


def build_producer(bootstrap: str, settings: dict[str, Any]) -> Producer:
    """Return a producer for `produce`; `settings` take precedence."""
    from confluent_kafka import Producer

    defaults = {
        "partitioner": "murmur2_random",
        "linger.ms": 5,
        # The topic limits the size of a record, not the client.
        "message.max.bytes": RECORD_BYTES_MAX,
    }
    with refused_settings():
        return Producer(base_settings(bootstrap) | defaults | settings, logger=quiet_logger())


def build_consumer(bootstrap: str, *, isolation: str = READ_COMMITTED) -> Consumer:
    """Return a consumer without a group, for `consume` and offsets; the caller assigns."""
    from confluent_kafka import Consumer

    own = {
        "group.id": CLIENT_ID,
        "auto.offset.reset": "error",
        "isolation.level": isolation,
    }
    with refused_settings():
        return Consumer(base_settings(bootstrap) | READING | own, logger=quiet_logger())


def build_group_consumer(bootstrap: str, settings: dict[str, Any]) -> Consumer:
    """Return a consumer for `consume --group`: `settings` name the group and its protocol."""
    from confluent_kafka import Consumer

    with refused_settings():
        return Consumer(base_settings(bootstrap) | READING | settings, logger=quiet_logger())


@contextmanager
def refused_settings() -> Iterator[None]:
    """Turn librdkafka's refusal of a setting into InputError: the user's file may have set it."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as exception:
        file = configured_file()
        if file is None:
            raise
        raise InputError(
            f"{file}: librdkafka refuses its settings: {exception.args[0].str()}",
            hint="See what there is:  "
            "https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md",
        ) from exception


def base_settings(bootstrap: str) -> dict[str, Any]:
    """Return the settings that consumers, producers and admin clients share."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": CLIENT_ID,
        "broker.address.family": address_family(bootstrap),
        "topic.metadata.refresh.interval.ms": METADATA_MAX_AGE_MS,
        "reconnect.backoff.max.ms": 1000,
        # A Service may lead to a pod that is just gone and never answers: try another one soon.
        "socket.connection.setup.timeout.ms": CONNECTION_SETUP_TIMEOUT_MS,
        "allow.auto.create.topics": False,
        **client_settings(),
    }


def address_family(bootstrap: str) -> str:
    """Return librdkafka's address family: IPv4 if each of these addresses has an IPv4 one.

    If `localhost` is `::1` first, and brokers listen at 127.0.0.1, a connection would be refused.
    """
    for address in parse_addresses(bootstrap):
        try:
            found = look_up(address.host, address.port)
        except OSError:
            continue  # librdkafka reports this, too.
        if all(each[0] != socket.AF_INET for each in found):
            return "any"
    return "v4"


def explain(error: KafkaError) -> str:
    """Return the broker's message if it sent one, else librdkafka's text for the code."""
    text = str(error.str())
    name = str(error.name()).lstrip("_")
    return text if name in text else f"{text} ({name})"


def build_error(what: str, error: KafkaError, *, name: str = "NAME") -> CliError:
    """Return the error for an attempt that failed.

    NoAnswerError if the broker died during it, ForbiddenError if a right is missing. `what` names
    the attempt, as in `cannot create topic orders`; `name` is its topic or group.
    """
    hint = HINTS.get(str(error.name()).lstrip("_"))
    if hint is not None:
        hint = hint.format(
            name=shlex.quote(name), cluster=cluster_arguments(), data=data_directory()
        )
    kind = KINDS.get(error.name(), CliError)
    return kind(f"{what}: {explain(error)}", hint=hint)


@contextmanager
def kafka_errors(what: str) -> Iterator[None]:
    """Turn an exception of librdkafka in this block into a CliError."""
    from confluent_kafka import KafkaException

    try:
        yield
    except (KafkaException, SystemError) as exception:
        raise build_error(what, kafka_error_of(exception)) from exception


def kafka_error_of(exception: BaseException) -> KafkaError:
    """Return the error in an exception of librdkafka's client; raise any other exception.

    A fatal error that is raised while a callback of ours runs comes as the cause of a SystemError.
    """
    from confluent_kafka import KafkaException

    for each in (exception, exception.__cause__):
        if isinstance(each, KafkaException):
            error: KafkaError = each.args[0]
            return error
    raise exception


def wait_for(future: Future[Result], what: str) -> Result:
    """Wait for the result of one admin operation."""
    with kafka_errors(what):
        return future.result()


def ask_again(question: Callable[[], Result]) -> Result:
    """Return the answer to an idempotent request; repeat it once if the broker died during it.

    librdkafka tries another broker for metadata, but not for requests of admin clients.
    """
    try:
        return question()
    except NoAnswerError:
        return question()


def describe_cluster(admin: AdminClient) -> DescribeClusterResult:
    """Ask which brokers are in service. CliError if none answers."""
    return ask_again(lambda: wait_for(admin.describe_cluster(), "cannot describe the cluster"))


def fetch_metadata(client: AdminClient | Consumer | Producer, topic: str | None = None) -> Any:
    """Return brokers, topics and partitions; only one topic if it is named."""
    # The client's C code imports this module; a Ctrl-C during that would become an ImportError.
    import confluent_kafka.admin  # noqa: F401

    try:
        with kafka_errors("the cluster does not answer"):
            return client.list_topics(topic=topic, timeout=REQUEST_TIMEOUT_S)
    except NoAnswerError as error:
        if login_settings() is None:
            error.hint = (
                "If its brokers ask clients to log in, --client-config FILE says how. See who "
                f"answers:  fairlead status{cluster_arguments()}"
            )
        raise


def require_topic(client: AdminClient | Consumer | Producer, topic: str) -> Any:
    """Return the metadata of a topic; CliError names the most similar one if it does not exist."""
    if len(topic) > TOPIC_NAME_CHARACTERS_MAX:
        # librdkafka has another error for a name of more than 512 characters.
        raise CliError(
            f"there is no topic with a name of {len(topic)} characters: "
            f"at most {TOPIC_NAME_CHARACTERS_MAX} fit"
        )
    metadata: ClusterMetadata = fetch_metadata(client, topic)
    found = metadata.topics.get(topic)
    if found is not None and found.error is None:
        return found
    if found is not None and found.error.name() not in UNKNOWN_TOPIC_NAMES:
        raise build_error(f"topic '{topic}' cannot be used", found.error)
    existing = fetch_metadata(client).topics
    listed = existing.get(topic)
    if listed is not None and listed.error is None:
        # The broker that was asked first had not heard of it yet.
        return listed
    raise build_unknown_topic_error(topic, list(existing))


UNKNOWN_TOPIC_NAMES = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC")


def build_unknown_topic_error(
    topic: str, existing: list[str], *, is_wanted: bool = True
) -> CliError:
    """Return an error that names the most similar topic and, if wanted, how to create one."""
    from difflib import get_close_matches

    cluster = cluster_arguments()
    close = get_close_matches(topic, existing, n=1)
    nearest = f"Did you mean '{close[0]}'?\n" if close else ""
    create = f"Create it:\n  fairlead topic create {shlex.quote(topic)}{cluster}\n"
    if not is_wanted:
        create = ""
    return CliError(
        f"topic '{topic}' does not exist",
        hint=f"{nearest}{create}See what there is:\n  fairlead topic list{cluster}",
    )
