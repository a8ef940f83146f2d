"""Certificates: what came of every case, and the verdict that follows from it by computation alone."""

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib import metadata
from typing import Any, Final

import attrs

from kplane_conformance.backend import Subject
from kplane_conformance.case import Group, Inventory, Leaf, View
from kplane_conformance.session import Outcome
from kplane_conformance.upstream import LEAF_CASES, UPSTREAM, UPSTREAM_VERSION

SCHEMA: Final = 1


class Verdict(StrEnum):
    """What a run says of a backend."""

    CONFORMANT = "conformant"
    WITH_WAIVERS = "with-waivers"
    NOT_CONFORMANT = "not-conformant"
    INCOMPLETE = "incomplete"
    UNAVAILABLE = "unavailable"


@attrs.frozen
class Entry:
    """What came of one leaf case, as the certificate keeps it.

    Attributes:
        id: the case.
        group: the heading that counts it.
        outcome: how it ended.
        reason: why, where it did not simply pass.
        milliseconds: how long it took.
    """

    id: str
    group: str
    outcome: str
    reason: str = ""
    milliseconds: float = 0.0


@attrs.frozen
class Count:
    """How many of something ran, were skipped, and there are."""

    run: int
    skipped: int
    total: int


@attrs.frozen
class Certificate:
    """A run of the suite on one backend.

    Attributes:
        backend: its name.
        distribution: who provides it.
        version: that distribution's version.
        suite: version, digest and size of the suite that asked.
        environment: core, Python and platform.
        seed: of the random cases.
        verdict: what follows.
        entries: what came of each case of the inventory that was reported.
        missing: cases of the inventory of which nothing was reported.
        capabilities: what the backend declares: "supported", or the reason why not.
        waivers: what its authors wrote down.
        server: the version of the database, where the harness tells.
        layers: what came of the cases through each other view, by their names without the view.
    """

    backend: str
    distribution: str
    version: str
    suite: Mapping[str, Any]
    environment: Mapping[str, str]
    seed: int
    verdict: Verdict
    entries: Sequence[Entry]
    missing: Sequence[str]
    capabilities: Mapping[str, str]
    waivers: Sequence[Mapping[str, str]]
    server: str = ""
    layers: Mapping[str, Sequence[Entry]] = attrs.field(factory=dict)

    def functions(self) -> Count:
        """Count the upstream functions: one is run when any of its leaf cases is, through any view."""
        ran = self._ran_anywhere()
        names = {entry.id.partition("[")[0] for entry in self.entries if _in_upstream(entry) and entry.id in ran}
        asked = {entry.id.partition("[")[0] for entry in self.entries if _in_upstream(entry)}
        return Count(len(names), len(asked - names), len(UPSTREAM))

    def leaves(self) -> Count:
        """Count the upstream leaf cases; one is run when it is through any view."""
        mine = [entry for entry in self.entries if _in_upstream(entry)]
        ran = sum(entry.id in self._ran_anywhere() for entry in mine)
        return Count(ran, len(mine) - ran, LEAF_CASES)

    def views(self) -> Mapping[str, Count]:
        """Count the cases of every group through each view other than a plain store."""
        return {view: _counted(entries) for view, entries in self.layers.items()}

    def _ran_anywhere(self) -> frozenset[str]:
        everything = [self.entries, *self.layers.values()]
        return frozenset(entry.id for entries in everything for entry in entries if _ran(entry))

    def groups(self) -> Mapping[str, Count]:
        """Count the cases of every other group."""
        missing = Counter(self._missing_groups())
        found: dict[str, Count] = {}
        for group in Group:
            mine = [entry for entry in self.entries if entry.group == group.value]
            total = len(mine) + missing[group.value]
            if group is not Group.UPSTREAM and total:
                ran = sum(entry.id in self._ran_anywhere() for entry in mine)
                found[group.value] = Count(ran, len(mine) - ran, total)
        return found

    def _missing_groups(self) -> Sequence[str]:
        known = self.suite.get("groups", {})
        return [known[name] for name in self.missing if name in known and "@" not in name]

    def outcomes(self) -> Mapping[str, int]:
        """Count the outcomes, through every view."""
        return Counter(entry.outcome for entries in (self.entries, *self.layers.values()) for entry in entries)

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as plain JSON data."""
        document = attrs.asdict(self)
        document["suite"] = {key: value for key, value in self.suite.items() if key != "groups"}
        document["missing"] = [{"id": name, "group": self.suite["groups"].get(name, "")} for name in self.missing]
        document["counts"] = {
            "upstream functions": attrs.asdict(self.functions()),
            "upstream leaf cases": attrs.asdict(self.leaves()),
            **{group: attrs.asdict(count) for group, count in self.groups().items()},
            **{f"through {view}": attrs.asdict(count) for view, count in self.views().items()},
        }
        return document


def from_dict(document: Mapping[str, Any]) -> Certificate:
    """Return the certificate that `to_dict` wrote.

    Raises:
        ValueError: it is none.
    """
    try:
        fields = {key: value for key, value in document.items() if key != "counts"}
        missing = fields.pop("missing")
        fields["suite"] = {**fields["suite"], "groups": {one["id"]: one["group"] for one in missing}}
        fields["missing"] = tuple(one["id"] for one in missing)
        fields["verdict"] = Verdict(fields["verdict"])
        fields["entries"] = tuple(Entry(**entry) for entry in fields["entries"])
        layers = fields.get("layers", {})
        fields["layers"] = {view: tuple(Entry(**entry) for entry in found) for view, found in layers.items()}
        fields["waivers"] = tuple(fields["waivers"])
        return Certificate(**fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a conformance certificate: {error}") from error


def _in_upstream(entry: Entry) -> bool:
    return entry.group == Group.UPSTREAM.value


_NOT_RUN: Final = {Outcome.SKIPPED.value, Outcome.ELSEWHERE.value, Outcome.UNAVAILABLE.value}


def _ran(entry: Entry) -> bool:
    return entry.outcome not in _NOT_RUN


def _counted(entries: Sequence[Entry]) -> Count:
    ran = sum(map(_ran, entries))
    return Count(ran, len(entries) - ran, len(entries))


def verdict(entries: Sequence[Entry], missing: Sequence[str], hooks_missing: Sequence[str]) -> Verdict:
    """Return what follows from the outcomes.

    Args:
        entries: what came of the cases that were reported.
        missing: cases that were asked of the backend, but of which nothing was reported.
        hooks_missing: core cases that were skipped because the harness lacks a hook.
    """
    outcomes = {entry.outcome for entry in entries}
    if Outcome.UNAVAILABLE in outcomes:
        return Verdict.UNAVAILABLE
    if missing:
        return Verdict.INCOMPLETE
    if outcomes & {Outcome.FAILED, Outcome.UNEXPECTED_PASS}:
        return Verdict.NOT_CONFORMANT
    if Outcome.HARNESS_ERROR in outcomes or hooks_missing:
        return Verdict.INCOMPLETE
    return Verdict.WITH_WAIVERS if Outcome.WAIVED in outcomes else Verdict.CONFORMANT


def certificate(
    subject: Subject, inventory: Inventory, entries: Mapping[str, Entry], *, seed: int, server: str = ""
) -> Certificate:
    """Return the certificate of one backend.

    Args:
        subject: the backend.
        inventory: the whole suite.
        entries: what came of the cases that ran, by id.
        seed: of the random cases.
        server: the version of the database, if known.
    """
    asked = [leaf for leaf in inventory.leaves() if subject.applies(leaf)]
    viewed = [leaf for leaf in inventory.views() if subject.applies(leaf)]
    missing = tuple(leaf.id for leaf in (*asked, *viewed) if leaf.id not in entries)
    told = tuple(entries[leaf.id] for leaf in asked if leaf.id in entries)
    layers = {view.value: _through(view, viewed, entries) for view in View if view is not View.STORE}
    all_told = [*told, *(entry for found in layers.values() for entry in found)]
    return Certificate(
        backend=subject.installed.name,
        distribution=subject.installed.distribution,
        version=subject.installed.version,
        suite=_suite(inventory, asked),
        environment=_environment(),
        seed=seed,
        verdict=verdict(all_told, missing, _hooks_missing(asked, entries)),
        entries=told,
        missing=missing,
        capabilities={
            name.value: getattr(support, "reason", "") or "supported" for name, support in subject.capabilities.items()
        },
        waivers=tuple(
            {"case": waiver.case, "reason": waiver.reason, "issue": waiver.issue, "expires": str(waiver.expires)}
            for waiver in subject.waivers.values()
        ),
        server=server,
        layers={view: found for view, found in layers.items() if found},
    )


def _through(view: View, leaves: Sequence[Leaf], entries: Mapping[str, Entry]) -> Sequence[Entry]:
    """Return what came of the cases through one view, under their names."""
    mine = [leaf for leaf in leaves if leaf.view is view and leaf.id in entries]
    return tuple(attrs.evolve(entries[leaf.id], id=leaf.name) for leaf in mine)


def _suite(inventory: Inventory, asked: Sequence[Leaf]) -> Mapping[str, Any]:
    return {
        "version": metadata.version("kplane-conformance"),
        "digest": inventory.digest(),
        "size": len(inventory.leaves()),
        "upstream": UPSTREAM_VERSION,
        "groups": {leaf.id: leaf.case.group.value for leaf in asked},
    }


def _environment() -> Mapping[str, str]:
    return {
        "kplane-core": metadata.version("kplane-core"),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def _hooks_missing(asked: Sequence[Leaf], entries: Mapping[str, Entry]) -> list[str]:
    """Return the upstream cases that only a missing hook skipped: what they promise remains unproved."""
    return [
        leaf.id
        for leaf in asked
        if (entry := entries.get(leaf.id))
        and entry.outcome == Outcome.SKIPPED
        and entry.reason.startswith("no ")
        and leaf.case.group is Group.UPSTREAM
    ]
