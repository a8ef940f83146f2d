"""The `/scale` subresource: the number of replicas of anything that has one, as an `autoscaling/v1 Scale`."""

from typing import Any

from kplane_apiserver.apierrors import cannot_be_handled, field_invalid, invalid
from kplane_apiserver.apply import ApplyingScale, Tracking, manager_name
from kplane_apiserver.clusters.admission import metadata_of, without_nulls
from kplane_apiserver.kinds import Kind
from kplane_apiserver.patches import APPLY_PATCH, apply_patch
from kplane_apiserver.requests.params import WriteOptions, write_options
from kplane_apiserver.requests.writers import Change, check_kind, check_names, write_change
from kplane_apiserver.services import Services
from kplane_apiserver.storing.stores import Served
from kplane_apiserver.wire.bodies import decode_body, media_type
from kplane_apiserver.wire.http import Request, Response, json_response

Document = dict[str, Any]

SCALE = Kind("autoscaling", "v1", "Scale", "scales", "scale", "ScaleList", namespaced=True, verbs=())

_BUILTIN_PATHS = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".spec.selector",
}
_SHOWN_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
_MAX_REPLICAS = 2**31 - 1


async def get_scale(_services: Services, request: Request, served: Served) -> Response:
    """Answer with the scale of an object.

    Raises:
        KplaneError: as `Store.get` does.
    """
    route = request.route
    stored = await served.store.get(served.key(route.cluster, route.namespace, route.name))
    return json_response(scale_of(served.kind, stored.decode()))


async def update_scale(services: Services, request: Request, served: Served) -> Response:
    """Set an object's replicas to those of the Scale in the body.

    Raises:
        KplaneError: as `Store.guaranteed_update` does; 409 when the Scale is of an older version.
    """
    body = await request.body()
    given = decode_body(request.content_type, body)
    check_kind(SCALE, given)
    check_names(request, metadata_of(given))
    options = write_options(request, "UpdateOptions")
    return await _change(services, request, served, lambda _scale: given, options)


async def patch_scale(services: Services, request: Request, served: Served) -> Response:
    """Patch an object's scale.

    Raises:
        KplaneError: as `Store.guaranteed_update` does, and what `apply_patch` raises.
    """
    content_type, body = request.content_type, await request.body()
    applying = media_type(content_type) == APPLY_PATCH
    options = write_options(request, "PatchOptions", apply=applying)
    if applying:
        return await _apply(services, request, served, body, options)

    def change(scale: Document) -> Document:
        new = apply_patch(SCALE, content_type, body, scale)
        check_kind(SCALE, new)
        check_names(request, metadata_of(new))
        return new

    return await _change(services, request, served, change, options)


async def _apply(services: Services, request: Request, served: Served, body: bytes, options: WriteOptions) -> Response:
    kind = served.kind
    manifest = without_nulls(decode_body("application/yaml", body))
    check_names(request, metadata_of(manifest))
    applying = ApplyingScale(
        SCALE,
        kind,
        _path(kind, "specReplicasPath"),
        manager=manager_name(options.field_manager, ""),
        now=services.now(),
        manifest=manifest,
        force=options.force,
    )
    return await _change(services, request, served, applying.change, options, applying)


async def _change(
    services: Services,
    request: Request,
    served: Served,
    change: Change,
    options: WriteOptions,
    tracking: Tracking | None = None,
) -> Response:
    kind = served.kind

    def scaled(old: Document) -> Document:
        scale = scale_of(kind, old)
        if tracking is not None and "managedFields" in old["metadata"]:
            scale["metadata"]["managedFields"] = old["metadata"]["managedFields"]
        scale = change(scale)
        path = _path(kind, "specReplicasPath")
        new = _with_value(old, path, _replicas(request.route.name, scale))
        version = scale["metadata"].get("resourceVersion")
        new["metadata"] = {**old["metadata"], **({"resourceVersion": version} if version else {})}
        uid = scale["metadata"].get("uid")
        return new if not uid else {**new, "metadata": {**new["metadata"], "uid": uid}}

    stored = await write_change(services, request, served, scaled, options, subresource="", tracking=tracking)
    return json_response(scale_of(kind, stored.decode()))


def scale_of(kind: Kind, document: Document) -> Document:
    """Return an object's Scale.

    Args:
        kind: what the object is.
        document: the object, with its resourceVersion.
    """
    metadata = document["metadata"]
    status: Document = {"replicas": _value(document, _path(kind, "statusReplicasPath")) or 0}
    selector = _value(document, _path(kind, "labelSelectorPath"))
    if selector:
        status["selector"] = selector if isinstance(selector, str) else _selector_text(selector)
    replicas = _value(document, _path(kind, "specReplicasPath"))
    if replicas is None and kind.custom is None:
        replicas = 1  # upstream's default for every builtin kind that can be scaled
    return {
        "kind": SCALE.kind,
        "apiVersion": SCALE.api_version,
        "metadata": {name: metadata[name] for name in _SHOWN_METADATA if name in metadata},
        "spec": {} if replicas is None else {"replicas": replicas},
        "status": status,
    }


def _replicas(name: str, scale: Document) -> int:
    spec = scale.get("spec")
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else 0
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas > _MAX_REPLICAS:
        words = f"spec.replicas must be a whole number of at most {_MAX_REPLICAS}"
        raise cannot_be_handled(SCALE.kind, SCALE.version, words)
    if replicas < 0:
        cause = field_invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid([cause], kind=SCALE.kind, name=name, group=SCALE.group)
    return replicas


def _path(kind: Kind, which: str) -> list[str]:
    paths = _BUILTIN_PATHS if kind.custom is None else kind.custom.scale or {}
    return [part for part in paths.get(which, "").split(".") if part]


def _value(document: Any, path: list[str]) -> Any:
    if not path:
        return None
    for part in path:
        if not isinstance(document, dict):
            return None
        document = document.get(part)
    return document


def _with_value(document: Document, path: list[str], value: Any) -> Document:
    """Return the document with a value at the path; only the way there is copied."""
    first, *rest = path
    inner = document.get(first)
    return {**document, first: _with_value(inner if isinstance(inner, dict) else {}, rest, value) if rest else value}


def _selector_text(selector: Document) -> str:
    """Write a label selector as the query parameter that selects the same."""
    if "matchLabels" not in selector and "matchExpressions" not in selector:
        return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))  # a ReplicationController's
    terms = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for one in selector.get("matchExpressions") or []:
        key, values = one.get("key", ""), ",".join(sorted(one.get("values") or []))
        match one.get("operator"):
            case "In":
                terms.append(f"{key} in ({values})")
            case "NotIn":
                terms.append(f"{key} notin ({values})")
            case "Exists":
                terms.append(key)
            case "DoesNotExist":
                terms.append(f"!{key}")
    return ",".join(terms)
