"""Encoded Metadata replies, kept while the image is the same and there is room for them."""

from fairlead_broker.limits import METADATA_CACHE_BYTES_MAX, METADATA_CACHE_NAME_BYTES
from fairlead_broker.metadata.reply_cache import MetadataCache
from fairlead_model.cluster import empty_image


def test_a_reply_is_kept_until_the_image_changes() -> None:
    cache, image = MetadataCache(), empty_image("one")
    cache.keep(image, "question", b"reply", 0)
    assert cache.find(image, "question") == b"reply"
    assert cache.find(empty_image("one"), "question") is None


def test_what_a_question_holds_counts_too() -> None:
    """The topics that a principal may not see are part of its question."""
    cache, image = MetadataCache(), empty_image("one")
    names_count = METADATA_CACHE_BYTES_MAX // METADATA_CACHE_NAME_BYTES // 2
    for question in range(3):
        cache.keep(image, question, b"", names_count)
    assert [cache.find(image, question) for question in range(3)] == [None, None, b""]
    cache.keep(image, "too large", b"", 2 * names_count + 1)
    assert cache.find(image, "too large") is None
