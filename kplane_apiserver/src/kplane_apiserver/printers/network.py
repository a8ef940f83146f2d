"""Rows of the kinds that describe the network."""

from collections.abc import Iterator
from typing import Any

from kplane_apiserver.printers.columns import (
    AGE,
    NAME,
    NONE,
    Cells,
    Column,
    Printer,
    age_of,
    count,
    items,
    joined,
    mapping,
    name_of,
    selector,
    shortened,
    text,
    texts,
    whole,
    wide,
)

_UNSET = "<unset>"


def _service(service: dict[str, Any], now: float) -> Cells:
    return [
        name_of(service),
        text(service, "spec", "type", default="ClusterIP"),
        text(service, "spec", "clusterIP", default=NONE),
        _external_ip(service),
        ",".join(_ports(service)) or NONE,
        age_of(service, now),
        joined(mapping(service, "spec", "selector")),
    ]


def _ports(service: dict[str, Any]) -> Iterator[str]:
    for port in items(service, "spec", "ports"):
        node = f":{whole(port, 'nodePort')}" if whole(port, "nodePort") else ""
        yield f"{text(port, 'port')}{node}/{text(port, 'protocol', default='TCP')}"


def _external_ip(service: dict[str, Any]) -> str:
    fixed = texts(service, "spec", "externalIPs")
    match text(service, "spec", "type", default="ClusterIP"):
        case "ExternalName":
            return text(service, "spec", "externalName")
        case "LoadBalancer":
            return ",".join(_ingress_addresses(service) + fixed) or "<pending>"
        case _:
            return ",".join(fixed) or NONE


def _ingress_addresses(document: dict[str, Any]) -> list[str]:
    points = items(document, "status", "loadBalancer", "ingress")
    return [address for point in points if (address := text(point, "ip") or text(point, "hostname"))]


SERVICE = Printer(
    (
        NAME,
        Column("Type"),
        Column("Cluster-IP"),
        Column("External-IP"),
        Column("Port(s)"),
        AGE,
        wide("Selector", "The pods that it leads to."),
    ),
    _service,
)


def _ingress(ingress: dict[str, Any], now: float) -> Cells:
    hosts = [host for rule in items(ingress, "spec", "rules") if (host := text(rule, "host"))]
    legacy = text(ingress, "metadata", "annotations", "kubernetes.io/ingress.class", default=NONE)
    return [
        name_of(ingress),
        text(ingress, "spec", "ingressClassName", default=legacy),
        shortened(hosts, default="*"),
        ",".join(_ingress_addresses(ingress)),
        "80, 443" if count(ingress, "spec", "tls") else "80",
        age_of(ingress, now),
    ]


INGRESS = Printer((NAME, Column("Class"), Column("Hosts"), Column("Address"), Column("Ports"), AGE), _ingress)


def _ingress_class(found: dict[str, Any], now: float) -> Cells:
    parameters = mapping(found, "spec", "parameters")
    group = text(parameters, "apiGroup")
    shown = f"{text(parameters, 'kind')}{'.' if group else ''}{group}/{text(parameters, 'name')}"
    return [name_of(found), text(found, "spec", "controller"), shown if parameters else NONE, age_of(found, now)]


INGRESS_CLASS = Printer((NAME, Column("Controller"), Column("Parameters"), AGE), _ingress_class)


def _endpoints(endpoints: dict[str, Any], now: float) -> Cells:
    found = [
        f"{_bracketed(text(address, 'ip'))}:{text(port, 'port')}" if port else text(address, "ip")
        for subset in items(endpoints, "subsets")
        for port in (list(items(subset, "ports")) or [{}])
        for address in items(subset, "addresses")
    ]
    return [name_of(endpoints), shortened(found), age_of(endpoints, now)]


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


ENDPOINTS = Printer((NAME, Column("Endpoints"), AGE), _endpoints)


def _endpoint_slice(found: dict[str, Any], now: float) -> Cells:
    ports = [text(port, "port", default="*") for port in items(found, "ports")]
    addresses = [address for endpoint in items(found, "endpoints") for address in texts(endpoint, "addresses")]
    return [
        name_of(found),
        text(found, "addressType"),
        shortened(ports, default=_UNSET),
        shortened(addresses, default=_UNSET),
        age_of(found, now),
    ]


ENDPOINT_SLICE = Printer((NAME, Column("AddressType"), Column("Ports"), Column("Endpoints"), AGE), _endpoint_slice)


def _network_policy(policy: dict[str, Any], now: float) -> Cells:
    return [name_of(policy), selector(policy, "spec", "podSelector"), age_of(policy, now)]


NETWORK_POLICY = Printer((NAME, Column("Pod-Selector"), AGE), _network_policy)


def _parent_reference(document: dict[str, Any]) -> str:
    parent = mapping(document, "spec", "parentRef")
    named = (text(parent, "resource"), text(parent, "group"), text(parent, "namespace"), text(parent, "name"))
    resource, group, namespace, name = named
    qualified = f"{resource}.{group}" if group else resource
    return "/".join(part for part in (qualified, namespace, name) if part)


def _ip_address(address: dict[str, Any], now: float) -> Cells:
    return [name_of(address), _parent_reference(address), age_of(address, now)]


IP_ADDRESS = Printer((NAME, Column("ParentRef"), AGE), _ip_address)


def _service_cidr(cidr: dict[str, Any], now: float) -> Cells:
    return [name_of(cidr), ",".join(texts(cidr, "spec", "cidrs")), age_of(cidr, now)]


SERVICE_CIDR = Printer((NAME, Column("CIDRs"), AGE), _service_cidr)
