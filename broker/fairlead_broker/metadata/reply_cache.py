"""Encoded Metadata replies, kept for as long as the cluster's image stays the same object.

Clients of one kind ask for the same topics again and again, in one version, on one listener; the
reply depends on nothing but those and the image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.limits import METADATA_CACHE_BYTES_MAX, METADATA_CACHE_NAME_BYTES

if TYPE_CHECKING:
    from collections.abc import Hashable

    from fairlead_model.cluster import ClusterImage


class MetadataCache:
    """Replies by what was asked; forgotten together when the image changes or the bytes run out."""

    def __init__(self) -> None:
        self._image: ClusterImage | None = None
        self._replies: dict[Hashable, bytes] = {}
        self._size = 0

    def find(self, image: ClusterImage, question: Hashable) -> bytes | None:
        """Return the reply given to this question under this image."""
        if image is not self._image:
            return None
        return self._replies.get(question)

    def keep(self, image: ClusterImage, question: Hashable, reply: bytes, names_count: int) -> None:
        """Remember a reply to a question that holds so many names; large ones push all out."""
        size = len(reply) + names_count * METADATA_CACHE_NAME_BYTES
        if size > METADATA_CACHE_BYTES_MAX:
            return
        if image is not self._image or self._size + size > METADATA_CACHE_BYTES_MAX:
            self._image = image
            self._replies.clear()
            self._size = 0
        if question not in self._replies:
            self._size += size
        self._replies[question] = reply
