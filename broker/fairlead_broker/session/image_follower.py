"""A broker's copy of the cluster image, kept up by the messages of its controller. Pure.

It refuses gaps, and everything of a controller older than one it has followed (fencing): a
deposed controller may still be talking.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fairlead_model.cluster import Change, ClusterDelta, ClusterImage, empty_image
from fairlead_model.codec import CodecError, decode_changes, flag, whole
from fairlead_model.session.session_protocol import SessionProtocolError


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """How far an image has come: reigns are compared first, then deltas within a reign."""

    controller_epoch: int = -1
    sequence: int = -1


@dataclass(frozen=True, slots=True)
class Publication:
    """An image and what led to it from the one before."""

    delta: ClusterDelta
    image: ClusterImage
    position: Position


class ImageFollower:
    """Assembles messages into publications; `commit` once a publication has been acted on."""

    def __init__(
        self, cluster_id: str = "", on_skipped: Callable[[str], None] = lambda kind: None
    ) -> None:
        """`on_skipped` is called with each change of an optional kind that is unknown here."""
        self.image = empty_image(cluster_id)
        self.position = Position()
        self._parts: list[Change] = []
        self._on_skipped = on_skipped

    def begin(self, cluster_id: str, controller_epoch: int) -> None:
        """Start listening to a controller; SessionProtocolError if it must not be."""
        self.check_controller(controller_epoch)
        if self.image.cluster_id not in {"", cluster_id}:
            raise SessionProtocolError(
                f"the controller is of cluster {cluster_id}, not {self.image.cluster_id}"
            )
        if not self.image.cluster_id:
            self.image = empty_image(cluster_id)
        self._parts.clear()

    def check_controller(self, controller_epoch: int) -> None:
        """SessionProtocolError if a controller has been deposed by one seen already."""
        if controller_epoch < self.position.controller_epoch:
            raise SessionProtocolError(
                f"the controller has epoch {controller_epoch}, "
                f"epoch {self.position.controller_epoch} has been seen"
            )

    @property
    def is_between_publications(self) -> bool:
        """Whether no part of a publication has been received that is not complete yet."""
        return not self._parts

    def go_on(self, image: ClusterImage, position: Position) -> None:
        """Begin where the process before this one stood."""
        self.image, self.position = image, position

    def receive(self, message: dict[str, Any]) -> Publication | None:
        """Take a `changes` message; return the publication that it completes."""
        try:
            epoch, sequence = (whole(number) for number in message["position"][:2])
            changes = decode_changes(message["changes"], self._on_skipped)
            is_image, is_last = flag(message["is_image"]), flag(message["is_last"])
            position = Position(epoch, sequence)
            self._check(position, is_image=is_image)
            self._parts.extend(changes)
            if not is_last:
                return None
            parts, self._parts = self._parts, []
            return self._publication(position, parts, is_image=is_image)
        except (CodecError, KeyError, TypeError, ValueError) as error:
            raise SessionProtocolError(f"bad changes from the controller: {error}") from error

    def commit(self, publication: Publication) -> None:
        """Move on to a publication."""
        self.image = publication.image
        self.position = publication.position

    def _check(self, position: Position, *, is_image: bool) -> None:
        own = self.position
        if position.controller_epoch < own.controller_epoch:
            raise SessionProtocolError(f"changes of deposed controller {position}, at {own}")
        if not is_image and position != Position(own.controller_epoch, own.sequence + 1):
            raise SessionProtocolError(f"a gap: delta {position} after {own}")

    def _publication(
        self, position: Position, parts: list[Change], *, is_image: bool
    ) -> Publication:
        if not is_image:
            return Publication(ClusterDelta(tuple(parts)), self.image.apply(parts), position)
        image = empty_image(self.image.cluster_id).apply(parts)
        return Publication(ClusterDelta(tuple(image.changes_since(self.image))), image, position)
