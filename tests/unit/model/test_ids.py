import pytest

from fairlead_model.ids import (
    ZERO_TOPIC_ID,
    TopicId,
    is_assignable_topic_id,
    is_internal_topic,
    is_legal_topic_name,
    parse_topic_id,
    topic_id_text,
    topic_name_problem,
    topics_collide,
)


@pytest.mark.parametrize("name", ["a", "orders", "shop.orders_v2-x", "0", "a" * 249, "...", "__x"])
def test_legal_topic_names(name: str) -> None:
    assert is_legal_topic_name(name)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("", "empty"),
        (".", "cannot be"),
        ("..", "cannot be"),
        ("a" * 250, "250"),
        ("a b", "ASCII"),
        ("a/b", "ASCII"),
        ("ä", "ASCII"),
        ("a\n", "ASCII"),
        ("a\x00", "ASCII"),
    ],
)
def test_illegal_topic_names_are_explained(name: str, word: str) -> None:
    problem = topic_name_problem(name)
    assert problem is not None
    assert word in problem


@pytest.mark.parametrize(
    ("name", "other", "collides"),
    [
        ("a.b", "a_b", True),
        ("a.b.c", "a_b.c", True),
        ("a.b", "a.b", False),
        ("a-b", "a_b", False),
        ("ab", "a_b", False),
    ],
)
def test_names_collide_when_they_differ_in_dot_and_underscore(
    name: str, other: str, collides: bool
) -> None:
    assert topics_collide(name, other) is collides


def test_topic_id_text_is_kafkas_spelling() -> None:
    # What Kafka prints for the UUID 00112233-4455-6677-8899-aabbccddeeff.
    topic_id = TopicId(bytes.fromhex("00112233445566778899aabbccddeeff"))
    assert topic_id_text(topic_id) == "ABEiM0RVZneImaq7zN3u_w"
    assert parse_topic_id("ABEiM0RVZneImaq7zN3u_w") == topic_id


@pytest.mark.parametrize(
    "text", ["", "AAAA", "A" * 21, "A" * 23, "!" * 22, "A" * 21 + "B", "ä" * 22]
)
def test_other_texts_are_no_topic_ids(text: str) -> None:
    with pytest.raises(ValueError, match="topic id"):
        parse_topic_id(text)


def test_reserved_ids_and_ids_that_look_like_options_are_not_assigned() -> None:
    assert not is_assignable_topic_id(ZERO_TOPIC_ID)
    assert not is_assignable_topic_id(bytes(15) + b"\x01")
    assert not is_assignable_topic_id(b"\xfb" + bytes(15))  # its text starts with '-'
    assert not is_assignable_topic_id(b"short")
    assert is_assignable_topic_id(bytes(range(16)))


def test_internal_topics() -> None:
    assert is_internal_topic("__consumer_offsets")
    assert is_internal_topic("__transaction_state")
    assert not is_internal_topic("__mine")
