"""Write a kubeconfig with one context per virtual cluster, and leave everybody else's entries alone."""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs
import yaml

from kplane_apiserver.credentials.private_files import locked, write_private
from kplane_core.errors import UsageError

Document = dict[str, Any]

USER = "kplane"
_TRUST = ("certificate-authority-data", "certificate-authority", "tls-server-name", "insecure-skip-tls-verify")


@attrs.frozen
class Credentials:
    """How a client is let in, and how it knows the server.

    Attributes:
        token: its bearer token; empty for none.
        trust: the fields of a kubeconfig's cluster that say how the server's certificate is checked.
    """

    token: str = attrs.field(default="", repr=False)
    trust: Mapping[str, Any] = attrs.field(factory=dict)

    @classmethod
    def of_entries(cls, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> "Credentials":
        """Return those of a cluster and a user of a kubeconfig."""
        trust = {field: cluster[field] for field in _TRUST if cluster.get(field)}
        return cls(str(user.get("token") or ""), trust)


def trust_in(authority: str, server_name: str = "") -> Document:
    """Return the fields that make a client trust a certificate authority.

    Args:
        authority: its certificate in PEM; empty for one that the client's system knows.
        server_name: the name in the server's certificate, if it is not the one in its address.
    """
    trust = {}
    if authority:
        trust["certificate-authority-data"] = b64encode(authority.encode()).decode()
    if server_name:
        trust["tls-server-name"] = server_name
    return trust


def context_name(cluster: str) -> str:
    """Return the name of a cluster's context, as kplane's other tools name it."""
    return f"kplane-{cluster}"


def cluster_url(base_url: str, cluster: str) -> str:
    """Return the address of one virtual cluster below a server's address."""
    return f"{base_url}/clusters/{cluster}/control-plane"


@attrs.frozen
class Context:
    """A context for a kubeconfig.

    Attributes:
        name: its name, and that of its cluster.
        server: the address of a virtual cluster.
        user: the name of its user.
        credentials: what the user and the cluster get.
    """

    name: str
    server: str
    user: str
    credentials: Credentials


def write_kubeconfig(
    path: Path, base_url: str, clusters: Iterable[str], credentials: Credentials | None = None
) -> None:
    """Put a context `kplane-<cluster>` per cluster into the kubeconfig file.

    Entries of other names stay as they are, and so does a current context that is set. The file is replaced as a
    whole or not at all, readable by its owner only.

    Args:
        path: the file; made if absent.
        base_url: where the server listens, for example `http://127.0.0.1:8080`.
        clusters: the virtual clusters, the first one becoming the current context of a file that has none.
        credentials: how a client is let in; by default without a token.

    Raises:
        UsageError: the file is no kubeconfig, or cannot be read or written.
    """
    credentials = credentials or Credentials()
    user = user_name(base_url, credentials)
    add_contexts(path, [Context(context_name(one), cluster_url(base_url, one), user, credentials) for one in clusters])


def user_name(base_url: str, credentials: Credentials, user: str = USER) -> str:
    """Return the name of a user's entry: with a token it is one of this server only."""
    return f"{user}@{urlsplit(base_url).netloc}" if credentials.token else user


def add_contexts(path: Path, contexts: Iterable[Context]) -> None:
    """Put contexts into the kubeconfig file; see `write_kubeconfig`. Two of kplane's own at once lose no entry.

    Raises:
        UsageError: as `write_kubeconfig` does.
    """
    try:
        with locked(path.resolve().parent):
            document = _read(path)
            put_contexts(document, contexts)
            write_private(path, as_yaml(document).encode())
    except OSError as error:
        raise UsageError(f"cannot write the kubeconfig {path}: {_reason(error)}") from error


def as_yaml(document: Document) -> str:
    """Return a kubeconfig as it stands in a file."""
    text: str = yaml.safe_dump(document, sort_keys=False)
    return text


def empty_kubeconfig() -> Document:
    """Return a kubeconfig without entries."""
    return {"apiVersion": "v1", "kind": "Config"}


def put_contexts(document: Document, contexts: Iterable[Context]) -> None:
    """Put contexts into a kubeconfig, the first one becoming the current one if there is none."""
    for one in contexts:
        token = {"token": one.credentials.token} if one.credentials.token else {}
        _put(document, "clusters", {"name": one.name, "cluster": {"server": one.server, **one.credentials.trust}})
        entry = {"cluster": one.name, "user": one.user, "namespace": "default"}
        _put(document, "contexts", {"name": one.name, "context": entry})
        _put(document, "users", {"name": one.user, "user": token})
        document["current-context"] = document.get("current-context") or one.name
    _drop_unused_users(document)


def _drop_unused_users(document: Document) -> None:
    """Take away users of servers that no context names any more: their tokens ended with those servers."""
    used = {entry["context"].get("user") for entry in document["contexts"] if isinstance(entry.get("context"), dict)}
    document["users"] = [
        entry
        for entry in document["users"]
        if not str(entry.get("name")).startswith(f"{USER}@") or entry.get("name") in used
    ]


def _read(path: Path) -> Document:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        document = None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the kubeconfig {path}: {_reason(error)}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not YAML, so it is left alone; name another file with --kubeconfig") from error
    if document is None:
        document = empty_kubeconfig()
    if not isinstance(document, dict) or document.get("kind") != "Config" or not _lists_are_lists(document):
        raise UsageError(f"{path} is not a kubeconfig, so it is left alone; name another file with --kubeconfig")
    return document


def _lists_are_lists(document: Mapping[str, Any]) -> bool:
    """Whether every section to be merged holds named entries (or nothing)."""
    sections = (document.get(section) or [] for section in ("clusters", "contexts", "users"))
    return all(isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries) for entries in sections)


def _put(document: Document, section: str, entry: Document) -> None:
    """Replace the section's entry of that name, or append it."""
    entries: list[Document] = document.get(section) or []
    document[section] = entries
    for position, other in enumerate(entries):
        if other.get("name") == entry["name"]:
            entries[position] = entry
            return
    entries.append(entry)


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"
