"""What a definition's author is told about the rules in its schemas, and about what will not be done."""

import logging
from collections.abc import Iterator
from typing import Any

from kplane_apiserver.apierrors import field_forbidden, field_invalid, field_not_supported, field_required
from kplane_apiserver.schemas import cel
from kplane_apiserver.schemas.patterns import compile_pattern
from kplane_apiserver.schemas.rules import each_rule, field_path
from kplane_core.errors import StatusCause

_log = logging.getLogger(__name__)

_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")


def rule_faults(schema: dict[str, Any], path: str) -> Iterator[StatusCause]:
    """Yield what is wrong with the rules of a schema; whether they compile, only where CEL is installed."""
    for rule, place, node in each_rule(schema, path):
        yield from _rule_faults(rule, place)
        if rule.get("fieldPath") and field_path(node, rule["fieldPath"]) is None:
            words = "fieldPath must be a valid path: does not refer to a valid field"
            yield field_invalid(f"{place}.fieldPath", rule["fieldPath"], words)


def conversion_faults(spec: dict[str, Any], before: dict[str, Any] | None) -> Iterator[StatusCause]:
    """Yield what is wrong with a definition's `spec.conversion`.

    A webhook that is never called would leave objects unconverted, so it is refused; a stored definition that has one
    since earlier may keep it, and is warned of.

    Args:
        spec: the definition's spec.
        before: the spec that is stored; None on create.
    """
    conversion, kept = _conversion(spec), _conversion(before or {})
    strategy = conversion.get("strategy")
    if strategy == "Webhook":
        if kept.get("strategy") != "Webhook":
            words = "conversion webhooks are not called here; with the strategy None all versions share their fields"
            yield field_invalid("spec.conversion.strategy", strategy, words)
    elif not strategy:
        yield field_required("spec.conversion.strategy")
    elif strategy != "None":
        yield field_not_supported("spec.conversion.strategy", strategy, ("None",))
    elif conversion.get("webhook"):
        yield field_forbidden("spec.conversion.webhook", "should not be set when strategy is not set to Webhook")


def _conversion(spec: dict[str, Any]) -> dict[str, Any]:
    found = spec.get("conversion")
    return found if isinstance(found, dict) else {}


def definition_warnings(crd: dict[str, Any]) -> list[str]:
    """Return what a definition asks for and will not get; it is logged too."""
    found = [*_rule_warnings(crd), *_pattern_warnings(crd), *_conversion_warnings(crd)]
    for warning in found:
        _log.warning("CustomResourceDefinition %s: %s", (crd.get("metadata") or {}).get("name"), warning)
    return found


def _rule_warnings(crd: dict[str, Any]) -> Iterator[str]:
    rules = [rule for schema, path in _schemas(crd) for rule in each_rule(schema, path)]
    if rules and not cel.available():
        yield (
            f"{len(rules)} validation rules (x-kubernetes-validations) are not enforced: this server has no CEL; "
            f"install {cel.EXTRA}"
        )
    elif rules:
        for rule, path, _ in rules:
            if not _compiles(rule):
                yield f"{path}.rule: this rule is not enforced: it cannot be compiled"


def _pattern_warnings(crd: dict[str, Any]) -> Iterator[str]:
    for schema, path in _schemas(crd):
        pending: list[tuple[Any, str]] = [(schema, path)]
        while pending:
            node, place = pending.pop()
            if not isinstance(node, dict):
                continue
            pattern = node.get("pattern")
            if isinstance(pattern, str) and compile_pattern(pattern) is None:
                yield f"{place}.pattern: this pattern is not checked: it cannot be read here"
            properties = node.get("properties")
            named = properties.items() if isinstance(properties, dict) else ()
            pending.extend((child, f"{place}.properties[{name}]") for name, child in named)
            pending.extend((node.get(inner), f"{place}.{inner}") for inner in ("items", "additionalProperties"))


def _conversion_warnings(crd: dict[str, Any]) -> Iterator[str]:
    spec = crd.get("spec") or {}
    served = [version for version in spec.get("versions") or () if version.get("served")]
    if _conversion(spec).get("strategy") == "Webhook" and len(served) > 1:
        yield "spec.conversion: webhooks are not called: the versions share their fields, as with the strategy None"


def _schemas(crd: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    for position, version in enumerate((crd.get("spec") or {}).get("versions") or ()):
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if isinstance(schema, dict):
            yield schema, f"spec.versions[{position}].schema.openAPIV3Schema"


def _rule_faults(rule: dict[str, Any], place: str) -> Iterator[StatusCause]:
    text = (rule.get("rule") or "").strip()
    if not text:
        yield field_required(f"{place}.rule", "rule is not specified")
        return
    message = rule.get("message")
    if message is not None and not message.strip():
        yield field_invalid(f"{place}.message", message, "message must be non-empty if specified")
    elif message and "\n" in message.strip():
        yield field_invalid(f"{place}.message", message, "message must not contain line breaks")
    elif not message and "\n" in text:
        yield field_required(f"{place}.message", "message must be specified if rule contains line breaks")
    reason = rule.get("reason")
    if reason is not None and reason not in _REASONS:
        yield field_not_supported(f"{place}.reason", reason, _REASONS)
    if not cel.available():
        return
    for field, expression in (("rule", text), ("messageExpression", (rule.get("messageExpression") or "").strip())):
        if expression:
            yield from _compile_faults(rule, field, expression, place)


def _compile_faults(rule: dict[str, Any], field: str, expression: str, place: str) -> Iterator[StatusCause]:
    optional = bool(rule.get("optionalOldSelf")) and field == "rule"
    try:
        compiled = cel.compile_expression(expression, optional_old=optional)
    except cel.CelError as error:
        yield field_invalid(f"{place}.{field}", expression, str(error))
        return
    if field == "messageExpression":
        if compiled.returns not in {"DYN", "STRING"}:
            words = "messageExpression must evaluate to a string"
            yield field_invalid(f"{place}.{field}", expression, words)
        return
    if compiled.returns not in {"DYN", "BOOL"}:
        yield field_invalid(f"{place}.{field}", expression, "cel expression must evaluate to a bool")
    if rule.get("optionalOldSelf") and not compiled.uses_old:
        words = "may not be set if oldSelf is not used in rule"
        yield field_invalid(f"{place}.optionalOldSelf", True, words)


def _compiles(rule: dict[str, Any]) -> bool:
    try:
        cel.compile_expression((rule.get("rule") or "").strip(), optional_old=bool(rule.get("optionalOldSelf")))
    except cel.CelError:
        return False
    return True
