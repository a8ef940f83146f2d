"""Scripts: a line of writes, each with the event that a watch must tell of it.

A step is `[namespace/]name[+][~][@node]:E`. It replaces the whole pod: `+` gives it the label select=true, `~` the
phase Running, `@node` a node; `-name` deletes it. E is A (ADDED), M (MODIFIED), D (DELETED) or `.` for no event.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from kplane_conformance.context import Context, describe
from kplane_conformance.objects import pod
from kplane_core.storage.interface import EventType, Store, StoredObject, Watch
from kplane_core.storage.selection import Predicate

_STEP: Final = re.compile(
    r"(?P<gone>-?)(?:(?P<namespace>\w+)/)?(?P<name>\w+)(?P<labelled>\+?)(?P<running>~?)(?:@(?P<node>\w+))?:(?P<event>[AMD.])"
)
_EVENTS: Final = {"A": EventType.ADDED, "M": EventType.MODIFIED, "D": EventType.DELETED, ".": None}
_FIELDS: Final = {"name": "metadata.name", "ns": "metadata.namespace", "node": "spec.nodeName"}

KeyFunction = Callable[[str, str], str]
"""Namespace and name to the key of an object."""


@attrs.frozen
class Step:
    """One write of a script and what must come of it.

    Attributes:
        text: as the script writes it.
        namespace: of the pod; "" for a cluster-scoped one.
        name: of the pod.
        obj: the new pod; None for a deletion.
        event: the expected event; None for silence.
    """

    text: str
    namespace: str
    name: str
    obj: dict[str, Any] | None
    event: EventType | None


def steps(script: str, namespace: str) -> Sequence[Step]:
    """Return the steps of a script.

    Args:
        script: the script.
        namespace: of steps that name none.
    """
    return [_step(text, namespace) for text in script.split()]


def _step(text: str, namespace: str) -> Step:
    found = _STEP.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a step of a script")
    where, name = found["namespace"] or namespace, found["name"]
    obj = pod(
        name,
        where,
        node=found["node"] or "",
        phase="Running" if found["running"] else "",
        labels={"select": "true"} if found["labelled"] else None,
    )
    return Step(text, where, name, None if found["gone"] else obj, _EVENTS[found["event"]])


def selection(ctx: Context, selector: str) -> Predicate:
    """Return the predicate that a table writes in short: `*`, `name=`, `ns=`, `node=`, `node!=`, or `label NAME=VALUE`.

    A node is also named as indexed, so that a cache may look it up.
    """
    if selector == "*":
        return ctx.select()
    if selector.startswith("label "):
        return ctx.select(labels=selector.removeprefix("label "))
    fields = re.sub(r"\w+(?=!?=)", lambda found: _FIELDS[found[0]], selector)
    indexed = ("spec.nodeName",) if "node" in selector else ()
    return attrs.evolve(ctx.select(fields=fields), index_fields=indexed)


async def play(
    ctx: Context, store: Store, watch: Watch, script: str, *, namespace: str = "test-ns", key: KeyFunction | None = None
) -> None:
    """Write what the script says, expect what it says after each step, and at the end that the watch has no more.

    Args:
        ctx: the case's context.
        store: where to write.
        watch: what must tell of it.
        script: the script.
        namespace: of steps that name none.
        key: where pods are stored if not under `ctx.key`.
    """
    stored: dict[str, StoredObject] = {}
    played = steps(script, namespace)
    for number, step in enumerate(played, 1):
        where = (key or ctx.key)(step.namespace, step.name)
        before = stored.get(where)
        after = await store.delete(where) if step.obj is None else await ctx.update(store, step.obj, key=where)
        stored[where] = after
        try:
            await _expect(ctx, watch, step, before, after)
        except AssertionError as error:
            error.add_note(f"at step {number}, {step.text}, of the script: {script}")
            raise
    if played[-1].event is None:
        # Otherwise the order of events shows that no step before the last expected event had one.
        await ctx.expect_silence(watch)
    await ctx.expect_stopped(watch)


async def _expect(ctx: Context, watch: Watch, step: Step, before: StoredObject | None, after: StoredObject) -> None:
    if step.event is None:
        return
    want = after
    if step.event is EventType.DELETED:
        assert before is not None, f"the script deletes what it never wrote: {step.text}"
        want = StoredObject(key=after.key, revision=after.revision, raw=before.raw)
    await ctx.expect_event(watch, step.event, want)


async def expect_only_bookmarks(ctx: Context, watch: Watch) -> None:
    """Fail if anything but bookmarks comes within the harness's silence."""
    while True:
        try:
            event = await ctx.next_event(watch, ctx.session.harness.silence)
        except AssertionError:
            return
        assert event is not None, "expected silence, but the watch ended"
        assert event.type is EventType.BOOKMARK, f"expected silence, got {describe(event)}"
