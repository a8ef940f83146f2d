"""The work of `kplane cluster`: requests to a running server, and what is printed of the answers."""

# ruff: noqa: T201 - what a command prints is its work

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kplane_apiserver.commands.clusters_client import Client, Refused
from kplane_apiserver.commands.clusters_command import WORDS, ClusterOptions
from kplane_apiserver.credentials.kubeconfig import context_name, write_kubeconfig
from kplane_apiserver.printers.ages import age, human_duration, parse_time
from kplane_core.errors import UsageError

Document = dict[str, Any]
Words = tuple[str, ...]

CLUSTERS = "/apis/kplane.dev/v1/clusters"
_GONE = 404
_PAUSE = 0.05
_STDIO = "-"


def run(options: ClusterOptions, words: Words) -> int:
    """Do what the words say.

    Raises:
        UsageError: they say nothing known, there is no server, or it refuses.
    """
    verb, *rest = words or ("",)
    entry = _VERBS.get(verb)
    if entry is None:
        asked = f"no such verb {verb!r}" if verb else "a verb is needed"
        raise UsageError(f"kplane cluster: {asked}; there are {', '.join(_VERBS)}; see kplane cluster --help")
    work, fewest, most = entry
    if not fewest <= len(rest) <= most:
        usage = next(one for one in WORDS.split(" | ") if one.split()[0] == verb)
        raise UsageError(f"usage: kplane cluster {usage}")
    client = Client.find(options.server, options.kubeconfig)
    return work(client, options, tuple(rest))


def _create(client: Client, options: ClusterOptions, words: Words) -> int:
    made = client.post(CLUSTERS, _cluster(options, words[0]))
    _print_one(options, made, "created")
    return 0


def _list(client: Client, options: ClusterOptions, _words: Words) -> int:
    labels = _labels(options)
    selector = {"labelSelector": ",".join(f"{key}={value}" for key, value in labels.items())} if labels else {}
    found = client.get(CLUSTERS, **selector)
    items = found["items"]
    match options.output:
        case "json":
            print(json.dumps(found, indent=2))
        case "name":
            print("".join(f"{item['metadata']['name']}\n" for item in items), end="")
        case _:
            print(_table(items, time.time()) if items else f"no clusters at {client.url}")
    return 0


def _delete(client: Client, options: ClusterOptions, words: Words) -> int:
    for name in words:
        client.delete(f"{CLUSTERS}/{name}")
    for name in words:
        while options.wait and _exists(client, name):
            time.sleep(_PAUSE)
        print(f"cluster {name} {'deleted' if options.wait else 'is being deleted'}")
    return 0


def _exists(client: Client, name: str) -> bool:
    try:
        client.get(f"{CLUSTERS}/{name}")
    except Refused as refused:
        if refused.code == _GONE:
            return False
        raise
    return True


def _snapshot(client: Client, _options: ClusterOptions, words: Words) -> int:
    name, file = words[0], words[1] if len(words) > 1 else _STDIO
    snapshot = client.get(f"{CLUSTERS}/{name}/snapshot")
    text = json.dumps(snapshot, separators=(",", ":")) + "\n"
    if file == _STDIO:
        sys.stdout.write(text)
        return 0
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write the snapshot {file}: {error.strerror or error}") from error
    count = sum(resource["itemCount"] for resource in snapshot["resources"])
    print(f"{file}: {count} objects of cluster {name} as of revision {snapshot['resourceVersion']}")
    return 0


def _restore(client: Client, options: ClusterOptions, words: Words) -> int:
    name, file = words
    if options.label:
        raise UsageError("kplane cluster restore: --label does not go with restore; label the cluster afterwards")
    try:
        text = sys.stdin.read() if file == _STDIO else Path(file).read_text(encoding="utf-8")
        snapshot = json.loads(text)
    except OSError as error:
        raise UsageError(f"cannot read the snapshot {file}: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(f"{file} is no snapshot: it is not JSON") from error
    query = {"ttlSeconds": str(round(options.ttl))} if options.ttl else {}
    _print_one(options, client.post(f"{CLUSTERS}/{name}/restore", snapshot, **query), "restored")
    return 0


def _fork(client: Client, options: ClusterOptions, words: Words) -> int:
    source, name = words
    made = client.post(f"{CLUSTERS}/{source}/fork", _cluster(options, name))
    _print_one(options, made, f"forked from {source}")
    return 0


def _kubeconfig(client: Client, options: ClusterOptions, words: Words) -> int:
    for name in words:
        client.get(f"{CLUSTERS}/{name}")
    write_kubeconfig(options.kubeconfig, client.url, words, client.credentials)
    contexts = ", ".join(context_name(name) for name in words)
    print(f"{options.kubeconfig}: {contexts}")
    return 0


def _cluster(options: ClusterOptions, name: str) -> Document:
    metadata: Document = {"name": name}
    if labels := _labels(options):
        metadata["labels"] = labels
    document: Document = {"apiVersion": "kplane.dev/v1", "kind": "Cluster", "metadata": metadata}
    if options.ttl:
        document["spec"] = {"ttlSeconds": round(options.ttl)}
    return document


def _labels(options: ClusterOptions) -> dict[str, str]:
    pairs = [one.partition("=") for one in options.label]
    if wrong := next((key for key, equals, _ in pairs if not equals or not key), None):
        raise UsageError(f"--label {wrong}: must be NAME=VALUE")
    return {key: value for key, _, value in pairs}


def _print_one(options: ClusterOptions, made: Document, done: str) -> None:
    name = made["metadata"]["name"]
    match options.output:
        case "json":
            print(json.dumps(made, indent=2))
        case "name":
            print(name)
        case _:
            print(f"cluster {name} {done}")


def _table(items: Sequence[Document], now: float) -> str:
    rows = [("NAME", "PHASE", "AGE", "ENDS IN", "LABELS"), *(_row(item, now) for item in items)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("   ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _row(item: Document, now: float) -> tuple[str, str, str, str, str]:
    metadata = item["metadata"]
    created, ttl = metadata.get("creationTimestamp"), (item.get("spec") or {}).get("ttlSeconds")
    moment = parse_time(created)
    ends = human_duration(max(moment + ttl - now, 0)) if ttl and moment is not None else "<never>"
    labels = ",".join(f"{key}={value}" for key, value in sorted((metadata.get("labels") or {}).items()))
    phase = (item.get("status") or {}).get("phase", "")
    return metadata["name"], phase, age(created, now), ends, labels or "<none>"


_MANY = 10_000
_VERBS: Mapping[str, tuple[Callable[[Client, ClusterOptions, Words], int], int, int]] = MappingProxyType(
    {
        "create": (_create, 1, 1),
        "list": (_list, 0, 0),
        "delete": (_delete, 1, _MANY),
        "snapshot": (_snapshot, 1, 2),
        "restore": (_restore, 2, 2),
        "fork": (_fork, 2, 2),
        "kubeconfig": (_kubeconfig, 1, _MANY),
    }
)
