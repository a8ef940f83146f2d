"""The schema's part in one request: fit what the client sent, warn or refuse, judge the result."""

from typing import Any

from kplane_apiserver.apierrors import cannot_be_handled, field_invalid, invalid
from kplane_apiserver.checks.fieldvalidation import drop_unknown
from kplane_apiserver.kinds import Kind
from kplane_apiserver.schemas.compiled import CompiledSchema, compiled, unknown_fields
from kplane_apiserver.schemas.definitions import definition_warnings
from kplane_apiserver.schemas.places import Place
from kplane_core.errors import KplaneError

Document = dict[str, Any]

_DEFINITION = ("apiextensions.k8s.io", "v1", "customresourcedefinitions")


class Guard:
    """What a write of a kind has to pass; this one lets everything pass."""

    __slots__ = ()

    def fit(self, document: Document) -> None:
        """Make an object fit its schema: unknown fields go, defaults come in.

        Args:
            document: the object; changed in place.

        Raises:
            BadRequest: it has unknown fields, and the client wants to be refused then.
            InvalidError: the same for a patch.
        """

    def fit_old(self, document: Document) -> None:
        """Make a stored object fit, as a reader would see it."""

    def check(self, new: Document, old: Document | None) -> None:
        """Return when an object is valid.

        Args:
            new: the object.
            old: what it replaces; None on create.

        Raises:
            InvalidError: 422 with a cause for each fault.
        """


class _SchemaGuard(Guard):
    """Holds a custom object to its schema."""

    __slots__ = ("_kind", "_patched", "_schema", "_validation", "_warnings")

    def __init__(
        self, kind: Kind, schema: CompiledSchema, validation: str, warnings: list[str], *, patched: bool
    ) -> None:
        self._kind = kind
        self._patched = patched
        self._schema = schema
        self._validation = validation
        self._warnings = warnings

    def fit(self, document: Document) -> None:
        if self._validation == "Ignore":
            self._schema.fit(document)
            return
        places: list[Place] = []
        self._schema.fit(document, places)
        if not places:
            return
        found = unknown_fields(places)
        if self._validation == "Strict":
            raise self._refusal(found, document)
        self._warnings.extend(found)

    def _refusal(self, found: list[str], document: Document) -> KplaneError:
        detail = f"strict decoding error: {', '.join(found)}"
        kind = self._kind
        if self._patched:
            return _refused_patch(kind, document, detail)
        return cannot_be_handled(kind.kind, kind.version, detail)

    def fit_old(self, document: Document) -> None:
        self._schema.fit(document)

    def check(self, new: Document, old: Document | None) -> None:
        causes = self._schema.causes(new, old)
        if causes:
            raise invalid(causes, kind=self._kind.kind, name=new["metadata"].get("name", ""), group=self._kind.group)


class _TypeGuard(Guard):
    """Holds what a patch made of a builtin object to the fields of its kind; what is sent whole, its reader checks."""

    __slots__ = ("_kind", "_patched", "_validation", "_warnings")

    def __init__(self, kind: Kind, validation: str, warnings: list[str], *, patched: bool) -> None:
        self._kind = kind
        self._patched = patched
        self._validation = validation
        self._warnings = warnings

    def fit(self, document: Document) -> None:
        found = drop_unknown(self._kind, document) if self._patched else []
        if found and self._validation == "Strict":
            raise _refused_patch(self._kind, document, f"strict decoding error: {', '.join(found)}")
        if self._validation != "Ignore":
            self._warnings.extend(found)


class _DefinitionGuard(_TypeGuard):
    """Warns of what a definition asks for and will not get."""

    __slots__ = ()

    def check(self, new: Document, old: Document | None) -> None:
        if old is None or new.get("spec") != old.get("spec"):
            self._warnings.extend(definition_warnings(new))


def _refused_patch(kind: Kind, document: Document, detail: str) -> KplaneError:
    # Upstream shows what was sent; here a name must do, as the object may hold secrets.
    metadata = document.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    return invalid([field_invalid("patch", f"{kind.kind} {name}", detail)], kind="", name="")


_OPEN = Guard()


def guard_for(kind: Kind, validation: str, warnings: list[str], *, patched: bool = False) -> Guard:
    """Return what a write of a kind has to pass.

    Args:
        kind: what is written.
        validation: `Strict`, `Ignore`, or empty or `Warn` for warnings.
        warnings: takes what the client is told besides the answer.
        patched: whether a patch made the object, so that the client did not send it itself.
    """
    if kind.custom is not None:
        return _SchemaGuard(kind, compiled(kind.custom), validation, warnings, patched=patched)
    if kind.key == _DEFINITION:
        return _DefinitionGuard(kind, validation, warnings, patched=patched)
    return _TypeGuard(kind, validation, warnings, patched=True) if patched else _OPEN


def fits_on_read(kind: Kind) -> bool:
    """Return whether every stored object of a kind may lack what readers are to see, or hold what they are not to see.

    Where this is not so, `CustomKind.fitted_since` says which objects may; later ones are as their writer fitted them.
    """
    custom = kind.custom
    if custom is None:
        return False
    versions = {*custom.served_versions, *custom.stored_versions}
    # A status that a client sends on create is dropped after the object was fitted.
    return len(versions) > 1 or (custom.status and compiled(custom).defaults_status)


def fit_stored(kind: Kind, document: Document) -> bool:
    """Make a stored object fit the schema of the version that is read; return whether it changed."""
    return kind.custom is not None and compiled(kind.custom).fit(document)


def fit_copied(kind: Kind, document: Document) -> None:
    """Make an object fit that is about to be stored without a guard's look, so that readers need not."""
    if kind.custom is not None and not fits_on_read(kind):
        compiled(kind.custom).fit(document)
