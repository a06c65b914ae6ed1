"""Clients that log in, write a record and read it back in a group: a function for each client.

If it is refused, each raises AssertionError, or its own error, whose text says why.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokenProvider

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_bench.peers.java_tools import JavaTools

DEADLINE_S: Final = 60
TOKEN_LIFE_S: Final = 300
BOOTSTRAP_MS: Final = 10_000
"""How long kafka-python retries a password that was refused."""
JAVA_LOGIN_MODULES: Final = {
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
JAVA_TOKENS: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


@dataclass(frozen=True)
class Login:
    """How a client logs in: by a SASL mechanism, or ("") by a certificate."""

    mechanism: str
    bootstrap: str
    authority: Path
    certificate: Path
    """Chain and key, as PEM."""
    user: str
    password: str
    token: str

    @property
    def protocol(self) -> str:
        return "SASL_SSL" if self.mechanism else "SSL"


class Tokens(AbstractTokenProvider):
    """The token provider of aiokafka."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


class KafkaPythonTokens(KafkaPythonTokenProvider):
    """The token provider of kafka-python."""

    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


def librdkafka_settings(login: Login) -> dict[str, str]:
    """Return librdkafka's settings of the login, without tokens."""
    settings = {
        "bootstrap.servers": login.bootstrap,
        "security.protocol": login.protocol,
        "ssl.ca.location": str(login.authority),
    }
    if not login.mechanism:
        return settings | {
            "ssl.certificate.location": str(login.certificate),
            "ssl.key.location": str(login.certificate),
        }
    settings["sasl.mechanism"] = login.mechanism
    if login.mechanism != "OAUTHBEARER":
        settings |= {"sasl.username": login.user, "sasl.password": login.password}
    return settings


def by_confluent(login: Login, topic: str, group: str, value: bytes) -> None:
    errors: list[KafkaError] = []
    settings: dict[str, Any] = librdkafka_settings(login)
    settings |= {"log_level": 0, "error_cb": errors.append}
    if login.mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = lambda _: (login.token, time.time() + TOKEN_LIFE_S)

    def keep(error: object) -> None:
        if error:
            errors.append(error)

    producer = Producer(settings)
    producer.produce(topic, value, on_delivery=lambda error, _: keep(error))
    deadline_s = time.monotonic() + DEADLINE_S
    while len(producer):
        producer.poll(0.1)
        assert time.monotonic() < deadline_s, "not acknowledged in time"
        refused = [each for each in errors if each.code() == KafkaError._AUTHENTICATION]
        assert not refused, f"authentication failed: {refused}"
    assert not errors, errors
    consumer = Consumer(settings | {"group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        while (message := consumer.poll(1)) is None or message.value() != value:
            assert message is None or message.error() is None, message
            assert time.monotonic() < deadline_s, f"the record did not come back: {errors}"
    finally:
        consumer.close()


def by_kafka_python(login: Login, topic: str, group: str, value: bytes) -> None:
    is_by_token = login.mechanism == "OAUTHBEARER"
    settings: dict[str, Any] = {
        "bootstrap_servers": login.bootstrap,
        "security_protocol": login.protocol,
        "ssl_cafile": str(login.authority),
        "bootstrap_timeout_ms": BOOTSTRAP_MS,
    }
    if login.mechanism:
        settings |= {
            "sasl_mechanism": login.mechanism,
            "sasl_plain_username": login.user,
            "sasl_plain_password": login.password,
            "sasl_oauth_token_provider": KafkaPythonTokens(login.token) if is_by_token else None,
        }
    else:
        settings["ssl_certfile"] = settings["ssl_keyfile"] = str(login.certificate)
    producer = KafkaProducer(**settings)
    try:
        producer.send(topic, value).get(DEADLINE_S)
    finally:
        producer.close(timeout=1)
    consumer = KafkaConsumer(
        topic,
        group_id=group,
        auto_offset_reset="earliest",
        consumer_timeout_ms=DEADLINE_S * 1000,
        **settings,
    )
    try:
        assert any(record.value == value for record in consumer), "it did not come back"
    finally:
        consumer.close()


def by_aiokafka(login: Login, topic: str, group: str, value: bytes) -> None:
    context = ssl.create_default_context(cafile=str(login.authority))
    settings: dict[str, Any] = {
        "bootstrap_servers": login.bootstrap,
        "security_protocol": login.protocol,
        "ssl_context": context,
    }
    if login.mechanism:
        is_by_token = login.mechanism == "OAUTHBEARER"
        settings |= {
            "sasl_mechanism": login.mechanism,
            "sasl_plain_username": login.user,
            "sasl_plain_password": login.password,
            "sasl_oauth_token_provider": Tokens(login.token) if is_by_token else None,
        }
    else:
        context.load_cert_chain(login.certificate)

    async def exchange() -> None:
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, value)
        consumer = AIOKafkaConsumer(topic, group_id=group, auto_offset_reset="earliest", **settings)
        async with consumer:
            while (await consumer.getone()).value != value:
                pass

    asyncio.run(asyncio.wait_for(exchange(), DEADLINE_S))


def by_kcat(login: Login, topic: str, group: str, value: bytes) -> None:
    command = ["kcat", "-X", "log_level=0"]
    for name, text in librdkafka_settings(login).items():
        command += ["-X", f"{name}={text}"]
    run([*command, "-P", "-t", topic], value)
    # As a member it reads until it has the one record that the topic has.
    read = [*command, "-X", "auto.offset.reset=earliest", "-c", "1", "-q", "-G", group, topic]
    assert run(read) == value + b"\n"


IN_PYTHON: Final = {
    "confluent-kafka": by_confluent,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
}


def by_python(client: str) -> Callable[[Login, str, str, bytes], None]:
    """Run one of these in another process: two of them leave sockets to the garbage collector."""
    return by_program(sys.executable, __file__, client)


def by_program(*command: str) -> Callable[[Login, str, str, bytes], None]:
    """Return a client in another language: a program that reads the login, as JSON, from stdin."""

    def exchange(login: Login, topic: str, group: str, value: bytes) -> None:
        who = {
            "Mechanism": login.mechanism,
            "Bootstrap": login.bootstrap,
            "Authority": str(login.authority),
            "Certificate": str(login.certificate),
            "User": login.user,
            "Password": login.password,
            "Token": login.token,
        }
        run([*command, topic, group, value.decode()], json.dumps(who).encode())

    return exchange


def java_properties(login: Login, folder: Path) -> Path:
    """Write them to a file, with the token in another beside it."""
    lines = {
        "security.protocol": login.protocol,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(login.authority),
    }
    if login.mechanism:
        module = JAVA_LOGIN_MODULES[login.mechanism]
        words = f'username="{login.user}" password="{login.password}"'
        if login.mechanism == "OAUTHBEARER":
            words = ""
            token = folder / "token"
            token.write_text(login.token)
            lines["sasl.login.callback.handler.class"] = JAVA_TOKENS
            lines["sasl.oauthbearer.token.endpoint.url"] = token.as_uri()
        lines["sasl.mechanism"] = login.mechanism
        lines["sasl.jaas.config"] = f"{module} required {words};"
    else:
        lines["ssl.keystore.type"] = "PEM"
        lines["ssl.keystore.location"] = str(login.certificate)
    file = folder / "client.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in lines.items()))
    return file


def by_kafkas_tools(tools: JavaTools, folder: Path) -> Callable[[Login, str, str, bytes], None]:
    """Return the Java clients, as Kafka's tools: admin, producer and consumer."""

    def exchange(login: Login, topic: str, group: str, value: bytes) -> None:
        access = ("--command-config", str(java_properties(login, folder)))
        listed = tools.run("kafka-topics", *access, "--list").split()
        assert topic in listed, listed
        written = tools.run_unchecked(
            "kafka-console-producer", *access, "--topic", topic, stdin=value + b"\n"
        )
        # Its exit code is 0 even if records have failed.
        assert b"Exception" not in written.stderr, written.stderr.decode()
        read = tools.run(
            "kafka-console-consumer",
            *access,
            *("--topic", topic, "--group", group, "--from-beginning"),
            *("--max-messages", "1", "--timeout-ms", str(DEADLINE_S * 1000)),
        )
        assert read.encode() == value + b"\n"

    return exchange


def run(command: list[str], stdin: bytes = b"") -> bytes:
    """Return a program's output; its error as AssertionError."""
    ended = subprocess.run(
        command, input=stdin, capture_output=True, timeout=DEADLINE_S, check=False
    )
    assert ended.returncode == 0, ended.stderr.decode(errors="replace")
    return ended.stdout


def main(client: str, topic: str, group: str, value: str) -> None:
    """Be the process of `by_python`."""
    logging.basicConfig(level=logging.ERROR)
    who = json.load(sys.stdin)
    login = Login(
        who["Mechanism"],
        who["Bootstrap"],
        Path(who["Authority"]),
        Path(who["Certificate"]),
        who["User"],
        who["Password"],
        who["Token"],
    )
    IN_PYTHON[client](login, topic, group, value.encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
