"""Preconditions of updates and deletes."""

from typing import Any

import attrs

from kplane_core.errors import InternalError, InvalidObj


@attrs.frozen
class Preconditions:
    """What must hold for the stored object; None asks nothing.

    Attributes:
        uid: the object's uid.
        resource_version: its resourceVersion, compared as text.
    """

    uid: str | None = None
    resource_version: str | None = None

    def check(self, key: str, document: dict[str, Any]) -> None:
        """Return when the object meets the preconditions; the uid is looked at first.

        Args:
            key: for the message.
            document: the stored object with its resourceVersion; empty when nothing is stored.

        Raises:
            InvalidObj: it does not meet them.
            InternalError: it has no metadata to look at.
        """
        if self.uid is None and self.resource_version is None:
            return
        metadata = document.get("metadata", {})
        if not isinstance(metadata, dict):
            raise InternalError(f"can't enforce preconditions on {key!r}: the stored object has no metadata")
        self._check_one(key, "UID", self.uid, metadata.get("uid", ""))
        self._check_one(key, "ResourceVersion", self.resource_version, metadata.get("resourceVersion", ""))

    @staticmethod
    def _check_one(key: str, what: str, wanted: str | None, found: object) -> None:
        if wanted is not None and wanted != found:
            raise InvalidObj(
                key, f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
            )
