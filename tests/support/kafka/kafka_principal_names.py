"""Names in certificates, and the users that Kafka's own rules make of them, as golden answers.

Run it where Java is, to make kafka_principal_names.json beside its tests anew:

    PYTHONPATH=benchmarks .venv/bin/python tests/support/kafka/kafka_principal_names.py
"""

from __future__ import annotations

import base64
import json
import random
import subprocess
from pathlib import Path
from typing import Final

from fairlead_bench.peers.kafka_distribution import ensure_kafka

GOLDEN: Final = Path(__file__).parents[2] / "unit/broker/security/golden/kafka_principal_names.json"
PROGRAM: Final = Path(__file__).with_name("KafkaPrincipalNames.java")
CASES: Final = 400
SEED: Final = 16

UTF8, PRINTABLE, TELETEX, IA5, BMP, INTEGER, OCTETS = 0x0C, 0x13, 0x14, 0x16, 0x1E, 0x02, 0x04
TYPES: Final = {
    "CN": "550403",
    "SN": "550404",
    "C": "550406",
    "L": "550407",
    "ST": "550408",
    "STREET": "550409",
    "O": "55040a",
    "OU": "55040b",
    "T": "55040c",
    "UID": "0992268993f22c640101",
    "DC": "0992268993f22c640119",
    "email": "2a864886f70d010901",
    "own": "2b0601040182371502",
}
VALUES: Final = (
    "alice",
    "Alice Example",
    " leading",
    "trailing ",
    "  both  ",
    "a,b+c",
    'qu"ote\\back',
    "<angle>;semi",
    "#hash",
    "a#b=c",
    "ünïcode",
    "日本",
    "x" * 70,
    " ",
    "",
    "CN=fake,O=evil",
)
RULES: Final = (
    "DEFAULT",
    "RULE:^CN=([^,+]+)$/$1/",
    "RULE:^CN=(.*?),.*$/$1/L,DEFAULT",
    "RULE:^CN=([^,]+),OU=([^,]+).*$/$2-$1/U",
    "RULE:^.*O=([^,]+).*$/$1/,RULE:^.*UID=(.+?)(,.*|$)/uid-$1/L",
    r"RULE:^CN=(.*)\/(.*)$/$2/, RULE:^.+$/everybody/",
    "RULE:^CN=nobody$/nobody/",
    r"RULE:^(.+)$/literal \$1 $0/",
)


def element(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((tag, 0x80 | len(length))) + length + content


def attribute(chance: random.Random) -> bytes:
    oid = TYPES[chance.choice(list(TYPES))]
    text = chance.choice(VALUES)
    tag = chance.choices((UTF8, PRINTABLE, TELETEX, IA5, INTEGER, OCTETS), (12, 4, 1, 2, 1, 1))[0]
    if tag == INTEGER:
        data = b"\x2a"
    elif tag == OCTETS:
        data = b"\x01\x02"
    else:
        data = text.encode() if tag == UTF8 or not text.isascii() else text.encode("ascii")
        tag = tag if text.isascii() else UTF8
    return element(0x30, element(0x06, bytes.fromhex(oid)) + element(tag, data))


def name(chance: random.Random) -> bytes:
    parts = [
        element(0x31, b"".join(attribute(chance) for _ in range(chance.choices((1, 2), (9, 1))[0])))
        for _ in range(chance.randrange(1, 5))
    ]
    return element(0x30, b"".join(parts))


def main() -> None:
    """Write the file."""
    chance = random.Random(SEED)
    asked = [(name(chance).hex(), chance.choice(RULES)) for _ in range(CASES)]
    lines = "".join(f"{der} {base64.b64encode(rules.encode()).decode()}\n" for der, rules in asked)
    command = ["java", "-cp", ensure_kafka().classpath, str(PROGRAM)]
    answers = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    golden = []
    for (der, rules), line in zip(asked, answers.stdout.splitlines(), strict=True):
        told, user = (base64.b64decode(part[:-1]).decode() for part in line.split(" "))
        golden.append(
            {"der": der, "rules": rules, "name": told, "user": user[1:] if user != "-" else None}
        )
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
