"""Custom kinds in a thousand virtual clusters: the memory of a definition and ten objects in each."""

import http.client
import json
import os
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import yaml

from benchmarks.harness.results import Result
from benchmarks.harness.serving import Server, running

SUMMARY = "memory of a thousand clusters, each with a definition and ten objects"

_CLUSTERS = 1_000
_OBJECTS = 10
_BASE = "/clusters/{}/control-plane"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_ROOT = Path(__file__).resolve().parents[1]
_MANIFESTS = Path(os.environ.get("KPLANE_MANIFESTS", _ROOT.parent / "shared" / "data" / "manifests"))
_MB = 1024 * 1024


def measure(tries: int) -> Iterable[Result]:
    """Measure with a definition as people write them, and with a real one of 46 KB where it is at hand."""
    del tries
    yield from _measured(_definition(), _example, "a definition", floor=400)
    real = _MANIFESTS / "cert-manager" / "cert-manager.io_certificates.yaml"
    if real.exists():
        (document,) = yaml.load_all(real.read_bytes(), yaml.CSafeLoader)
        yield from _measured(document, _certificate, "cert-manager's Certificate", floor=None)


def _measured(definition: dict[str, Any], example: Any, what: str, floor: float | None) -> Iterable[Result]:
    spec = definition["spec"]
    served = next(version["name"] for version in spec["versions"] if version["storage"])
    objects = f"/apis/{spec['group']}/{served}/namespaces/default/{spec['names']['plural']}"
    with running() as server:
        clusters = [f"cluster-{number}" for number in range(_CLUSTERS)]
        with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection:
            _request(connection, "GET", _BASE.format("warm") + "/api/v1/namespaces")
            start = server.resident_bytes()
            sizes = list(_fill(connection, server, clusters, definition, objects, example))
        empty, defined, filled, listed = sizes
        note = (
            f"the process had {start / _MB:.0f} MB before; per cluster {(empty - start) / 1024 / _CLUSTERS:.1f} KB for "
            f"the cluster, {(defined - empty) / 1024 / _CLUSTERS:.1f} KB for the definition of "
            f"{len(json.dumps(definition)) / 1024:.1f} KB, {(filled - defined) / 1024 / _CLUSTERS:.1f} KB for its "
            f"objects, {(listed - filled) / 1024 / _CLUSTERS:.1f} KB once each was listed"
        )
        name = f"{_CLUSTERS:,} clusters with {what} and {_OBJECTS} objects each"
        yield Result(name, listed / _MB, "MB", floor=floor, at_most=True, note=note)


def _fill(
    connection: http.client.HTTPConnection,
    server: Server,
    clusters: Sequence[str],
    definition: dict[str, Any],
    objects: str,
    example: Any,
) -> Iterable[int]:
    """Make everything, step by step; yield the memory of the process after each step."""
    for cluster in clusters:
        _request(connection, "GET", _BASE.format(cluster) + "/api/v1/namespaces/default")
    yield server.resident_bytes()
    body = json.dumps(definition).encode()
    for cluster in clusters:
        _request(connection, "POST", _BASE.format(cluster) + _DEFINITIONS, body)
    yield server.resident_bytes()
    bodies = [json.dumps(example(number)).encode() for number in range(_OBJECTS)]
    for cluster in clusters:
        for body in bodies:
            _request(connection, "POST", _BASE.format(cluster) + objects, body)
    yield server.resident_bytes()
    for cluster in clusters:
        _request(connection, "GET", _BASE.format(cluster) + objects)
        _request(connection, "GET", _BASE.format(cluster) + "/apis")
    yield server.resident_bytes()


def _request(connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None) -> None:
    connection.request(method, path, body, {"content-type": "application/json"} if body else {})
    answer = connection.getresponse()
    said = answer.read()
    if answer.status not in {200, 201}:
        raise RuntimeError(f"{method} {path}: {answer.status} {said[:500]!r}")


# --- what is stored ---------------------------------------------------------------------------------------------------


def _definition() -> dict[str, Any]:
    """Return a definition of about 2 KB: a schema with defaults, a status, columns."""
    fields = {name: {"type": "string", "description": f"The {name} of the backup."} for name in ("source", "target")}
    schedule = {"type": "string", "pattern": r"^(\S+\s){4}\S+$", "description": "When it is made, as cron has it."}
    retention = {"type": "integer", "minimum": 1, "maximum": 365, "default": 30}
    selector = {"type": "object", "additionalProperties": {"type": "string"}}
    hooks = {"type": "array", "items": {"type": "object", "properties": fields, "required": ["source"]}}
    spec = {
        "type": "object",
        "required": ["source"],
        "properties": {**fields, "schedule": schedule, "retention": retention, "selector": selector, "hooks": hooks},
    }
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    columns = [
        {"name": name.capitalize(), "type": "string", "jsonPath": f".spec.{name}"} for name in ("source", "schedule")
    ]
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
    }
    names = {"plural": "backups", "singular": "backup", "kind": "Backup", "shortNames": ["bu"]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "backups.example.org"},
        "spec": {"group": "example.org", "scope": "Namespaced", "names": names, "versions": [version]},
    }


def _example(number: int) -> dict[str, Any]:
    spec = {
        "source": f"volume-{number}",
        "target": "s3://backups.example.org/daily",
        "schedule": "0 3 * * *",
        "selector": {"app": "web", "tier": "frontend"},
        "hooks": [{"source": "freeze"}, {"source": "thaw"}],
    }
    metadata = {"name": f"backup-{number}", "labels": {"app": "web"}}
    return {"apiVersion": "example.org/v1", "kind": "Backup", "metadata": metadata, "spec": spec}


def _certificate(number: int) -> dict[str, Any]:
    spec = {
        "secretName": f"web-{number}-tls",
        "dnsNames": [f"web-{number}.example.org"],
        "issuerRef": {"name": "letsencrypt", "kind": "ClusterIssuer"},
    }
    return {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": {"name": f"web-{number}"},
        "spec": spec,
    }
