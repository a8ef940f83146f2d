"""What a storage backend can do: every backend says yes or no, with a reason, to each capability."""

from collections.abc import Mapping
from enum import StrEnum

import attrs

from kplane_core.plugins.errors import InvalidPlugin


class Capability(StrEnum):
    """One ability of a storage backend; the string value is its name in reports and documents."""

    TTL = "ttl"
    """Records written with a time to live disappear by themselves, and watchers see them go.

    The API server stores Events this way. A backend without it keeps them until somebody deletes them.
    """

    COMPACTION = "compaction"
    """History below a revision can be dropped, and reads and watches from below it are refused as expired.

    Without it the database grows with every write, or drops history by rules of its own.
    """

    PROGRESS_NOTIFY = "progress_notify"
    """An idle watch learns how far the whole database has come: on request, and from time to time.

    The watch cache needs this to answer consistent reads by itself instead of asking the database.
    """

    CONSISTENT_LIST = "consistent_list"
    """A list that asks for the newest state sees every write that was acknowledged before the list began.

    All rows of one list, and the revision it reports, come from one snapshot.
    """

    EXACT_RV_LIST = "exact_rv_list"
    """A list can be asked for as of an exact earlier resourceVersion, until compaction passes it."""

    CONTINUE_TOKEN = "continue_token"  # noqa: S105 - no password, a paging word
    """A list comes in pages which together show one snapshot, whatever is written in between.

    When compaction passes that snapshot, the next page is refused as expired and offers an inconsistent continuation.
    """

    HISTORY_WINDOW = "history_window"
    """A watch starts at any resourceVersion not yet compacted and misses no change since, also in a new process."""

    INITIAL_EVENTS = "initial_events"
    """A watch can begin with the present state as ADDED events, then a bookmark that marks their end."""

    PERSISTENCE = "persistence"
    """Acknowledged writes survive the end of the process and of the machine that served them."""

    MULTI_WRITER = "multi_writer"
    """Several kplane processes may serve the same data at once; each sees the others' writes in one order."""


@attrs.frozen
class Supported:
    """The backend has the capability.

    Attributes:
        note: what an operator should know about it, if anything.
    """

    note: str = ""


@attrs.frozen
class Unsupported:
    """The backend lacks the capability, and says why.

    Attributes:
        reason: one sentence for operators; it stands in reports and in the skipped conformance cases.
    """

    reason: str = attrs.field(validator=attrs.validators.min_len(1))


Support = Supported | Unsupported


def check_declared(backend: str, capabilities: Mapping[Capability, Support]) -> None:
    """Refuse a declaration that leaves a capability out or names one that does not exist.

    Args:
        backend: the backend's name, for the message.
        capabilities: what it declares.

    Raises:
        InvalidPlugin: the declaration is not complete; the message lists what is missing.
    """
    if missing := [capability.value for capability in Capability if capability not in capabilities]:
        raise InvalidPlugin(
            f"backend {backend!r} does not declare {', '.join(missing)}: "
            f"say Supported() or Unsupported(reason) for every capability"
        )
    if unknown := [str(name) for name in capabilities if name not in set(Capability)]:
        raise InvalidPlugin(f"backend {backend!r} declares {', '.join(unknown)}, which this kplane-core does not know")
    for capability, support in capabilities.items():
        if not isinstance(support, Supported | Unsupported):
            raise InvalidPlugin(
                f"backend {backend!r} declares {capability.value} as {support!r}: "
                "say Supported() or Unsupported(reason)"
            )
