"""What a namespace that is being deleted tells of the content that is left, worded as upstream words it."""

from collections import Counter
from typing import Any

from kplane_apiserver.kinds import Kind
from kplane_core.storage.interface import ResponseMeta, UpdateResult

Document = dict[str, Any]

_FINE = (
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
)


class Remaining:
    """Counts what is left of a namespace's content; as an update function it puts that into the namespace's status.

    Args:
        now: the time, as a Kubernetes timestamp.
    """

    def __init__(self, now: str) -> None:
        self._now = now
        self._resources: Counter[str] = Counter()
        self._finalizers: Counter[str] = Counter()

    def __bool__(self) -> bool:
        """Whether anything is left."""
        return bool(self._resources)

    def add(self, kind: Kind, finalizers: list[str]) -> None:
        """Take an object that is held by finalizers."""
        self._resources[f"{kind.plural}.{kind.group}"] += 1
        self._finalizers.update(finalizers)

    def __call__(self, old: Document, _meta: ResponseMeta) -> UpdateResult:
        """Return the namespace with what is left; one that is not being deleted stays as it is."""
        if not old["metadata"].get("deletionTimestamp"):
            return old, None
        status = old.get("status") or {}
        before = {one.get("type"): one for one in status.get("conditions") or ()}
        conditions = [self._condition(before, kind, "False", reason, words) for kind, reason, words in _FINE]
        resources = ", ".join(
            f"{name} has {count} resource instances" for name, count in sorted(self._resources.items())
        )
        finalizers = ", ".join(
            f"{name} in {count} resource instances" for name, count in sorted(self._finalizers.items())
        )
        words = f"Some resources are remaining: {resources}"
        conditions.append(self._condition(before, "NamespaceContentRemaining", "True", "SomeResourcesRemain", words))
        words = f"Some content in the namespace has finalizers remaining: {finalizers}"
        conditions.append(
            self._condition(before, "NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", words)
        )
        others = [one for kind, one in before.items() if kind not in {new["type"] for new in conditions}]
        return {**old, "status": {**status, "conditions": [*others, *conditions]}}, None

    def _condition(self, before: dict[str, Document], kind: str, status: str, reason: str, words: str) -> Document:
        known = before.get(kind, {})
        since = known.get("lastTransitionTime", self._now) if known.get("status") == status else self._now
        return {"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": words}
