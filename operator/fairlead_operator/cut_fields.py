"""Fields of statuses that the API server cuts. Pure.

CustomResourceDefinitions of an earlier release drop fields that they do not know. Whoever compares
a status with the object again and again would write such a field each time.
"""

from collections.abc import Mapping
from typing import Any, Final

from fairlead_kube.object_changes import ObjectKey

NOTHING: Final[Mapping[str, tuple[Any, Any]]] = {}


class CutFields:
    """Remembers, for each object, what was written and what the server has kept of it instead."""

    def __init__(self) -> None:
        self._cut: dict[ObjectKey, tuple[str, dict[str, tuple[Any, Any]]]] = {}
        """By object: its uid, and the fields that were cut."""

    def forget(self, key: ObjectKey) -> None:
        """Forget an object that was deleted."""
        self._cut.pop(key, None)

    def without_cut(
        self, key: ObjectKey, uid: str, fields: Mapping[str, Any], before: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the fields of a status that are to be written, but for those cut before.

        A field is null where it is to be removed. It is written again once its value is another
        one, or that of the object is.
        """
        cut = self._of(key, uid)
        return {
            name: value
            for name, value in fields.items()
            if name not in cut or cut[name] != (value, before.get(name))
        }

    def note(
        self, key: ObjectKey, uid: str, fields: Mapping[str, Any], kept: Mapping[str, Any]
    ) -> None:
        """Note what the server has kept of fields that were written."""
        cut = {name: pair for name, pair in self._of(key, uid).items() if name not in fields}
        for name, value in fields.items():
            if value != kept.get(name):
                cut[name] = value, kept.get(name)
        if cut:
            self._cut[key] = uid, cut
        else:
            self._cut.pop(key, None)

    def _of(self, key: ObjectKey, uid: str) -> Mapping[str, tuple[Any, Any]]:
        of, cut = self._cut.get(key, ("", NOTHING))
        return cut if of == uid else NOTHING
