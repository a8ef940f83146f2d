"""What a server can be trusted with, by its version.

The versions are those in which etcd fixed what would otherwise lose events: the order of requested progress
(etcd-io/etcd#15220), progress of watches that see no events (#17507), and deletions at the compaction revision
(#18089). The first two are also where Kubernetes draws its line.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from kplane_core.plugins.capabilities import Capability, Support, Supported, Unsupported

Version = tuple[int, int, int]
_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_WHERE_TRUSTED: Final = "etcd 3.5.13, or 3.4.31 of the 3.4 series"


def parse_version(text: str) -> Version | None:
    """Return a version's three numbers, or None when it has another form."""
    found = _VERSION.match(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


@attrs.frozen
class Features:
    """What all members that answered can be trusted with.

    Attributes:
        progress: whether progress may be asked for.
        compaction_edge: whether a watch may begin at the compaction revision itself.
        reason: why progress may not be asked for; empty when it may.
    """

    progress: bool = True
    compaction_edge: bool = True
    reason: str = ""

    def capabilities(self, declared: Mapping[Capability, Support]) -> Mapping[Capability, Support]:
        """Return a declaration with what this server lacks taken out."""
        support = Supported() if self.progress else Unsupported(self.reason)
        return {**declared, Capability.PROGRESS_NOTIFY: support}


def features_of(versions: Iterable[str]) -> Features:
    """Return what the members with these versions can be trusted with; the weakest of them decides."""
    progress, edge, reason = True, True, ""
    for text in versions:
        version = parse_version(text)
        if progress and not _trusted_with_progress(version):
            progress = False
            reason = (
                f"etcd {text} may report progress before the events that belong to it (etcd-io/etcd#15220); "
                f"from {_WHERE_TRUSTED}, on it can be trusted"
            )
        edge = edge and _trusted_at_the_edge(version)
    return Features(progress, edge, reason)


def _trusted_with_progress(version: Version | None) -> bool:
    return version is not None and (version >= (3, 5, 13) or (3, 4, 31) <= version < (3, 5, 0))


def _trusted_at_the_edge(version: Version | None) -> bool:
    return version is not None and (version >= (3, 5, 18) or (3, 4, 36) <= version < (3, 5, 0))
