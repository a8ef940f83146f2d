"""A kopf operator that uses everything, for test_kopf.py; it notes what happens in a file."""

import os
from pathlib import Path

import kopf

NOTES = Path(os.environ["OPERATOR_NOTES"])
PARROTS = ("example.org", "v1", "parrots")


def note(text):
    with NOTES.open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")


@kopf.on.startup()
def startup(settings, **_):
    settings.posting.enabled = True
    # Who may not list namespaces and definitions has to say so, or kopf tries for a minute and a half.
    settings.scanning.disabled = os.environ["OPERATOR_SCOPE"] != "-A"
    settings.watching.reconnect_backoff = 0.1


@kopf.on.create(*PARROTS)
def created(body, patch, **_):
    kopf.event(body, type="Normal", reason="Hatched", message="a parrot hatched")
    patch.status["created"] = True


@kopf.on.update(*PARROTS, field="spec.colour")
def updated(old, new, patch, **_):
    patch.status["painted"] = f"{old} to {new}"


@kopf.on.delete(*PARROTS)
def deleted(name, **_):
    note(f"deleted {name}")


@kopf.timer(*PARROTS, interval=0.2)
def ticked(patch, status, **_):
    patch.status["ticks"] = status.get("ticks", 0) + 1


@kopf.daemon(*PARROTS)
async def daemon(stopped, name, **_):
    note(f"daemon of {name} began")
    await stopped.wait(3600)
    note(f"daemon of {name} ended")
