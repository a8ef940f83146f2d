"""The formats that Kubernetes' CEL names: `format.dns1123Label().validate(text)` is what is wrong with a text.

The runtime gives no optional value to a function of ours; so `validate` and `format.named` return lists of at most one,
which `cel_macros` makes optional.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from kplane_apiserver.checks.validation import (
    dns_1035_label_fault,
    dns_label_fault,
    label_value_fault,
    qualified_name_fault,
    subdomain_fault,
)
from kplane_apiserver.schemas.cel_strings import Row
from kplane_apiserver.schemas.formats import FORMATS

Fault = Callable[[str], str]
"""Says what is wrong with a text; empty when nothing is."""


def format_rows() -> Iterator[Row]:
    """Yield the functions."""
    for name in _NAMED:
        yield f"format.{name}", (), "map", partial(_format, name)
    yield "format.named", ("string",), "list", lambda name: [_format(name)] if name in _NAMED else []
    yield ".validate", ("map", "string"), "list", _validate


def _format(name: str) -> dict[str, Any]:
    return {"format": name}


def _validate(one: dict[str, Any], text: str) -> list[list[str]]:
    fault = _NAMED[one["format"]](text)
    return [[fault]] if fault else []


def _of_prefix(fault: Fault) -> Fault:
    """Return what judges the beginning of a name, which may end with a dash that something follows."""
    return lambda text: fault(f"{text[:-1]}a" if len(text) > 1 and text.endswith("-") else text)


def _of_format(name: str, words: str) -> Fault:
    check = FORMATS[name]
    return lambda text: "" if check(text) else words


_NAMED: dict[str, Fault] = {
    "dns1123Label": dns_label_fault,
    "dns1123Subdomain": subdomain_fault,
    "dns1035Label": dns_1035_label_fault,
    "qualifiedName": qualified_name_fault,
    "dns1123LabelPrefix": _of_prefix(dns_label_fault),
    "dns1123SubdomainPrefix": _of_prefix(subdomain_fault),
    "dns1035LabelPrefix": _of_prefix(dns_1035_label_fault),
    "labelValue": label_value_fault,
    "uri": _of_format("uri", "invalid URI for request"),
    "uuid": _of_format("uuid", "does not match the UUID format"),
    "byte": _of_format("byte", "invalid base64"),
    "date": _of_format("date", "invalid date"),
    "datetime": _of_format("datetime", "invalid datetime"),
}
