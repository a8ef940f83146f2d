"""Give a thousand tenants a cluster each, with one object in it, and look at them all together.

Usage: python thousand_tenants.py KUBECONFIG TOKEN
"""

import http.client
import json
import sys
from pathlib import Path

import yaml

TENANTS = 1000
MAPS = "/api/v1/namespaces/default/configmaps"


def main(kubeconfig: str, token: str) -> None:
    """Make the tenants, then list their objects with one request."""
    server = yaml.safe_load(Path(kubeconfig).read_text(encoding="utf-8"))["clusters"][0]["cluster"]["server"]
    address = server.split("/")[2]
    connection = http.client.HTTPConnection(address)

    def ask(method: str, path: str, document: object = None) -> dict:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        body = None if document is None else json.dumps(document)
        connection.request(method, path, body, headers)
        return json.load(connection.getresponse())

    for number in range(TENANTS):
        document = {"metadata": {"name": "plan"}, "data": {"seats": str(number)}}
        ask("POST", f"/clusters/tenant-{number}/control-plane{MAPS}", document)
    everything = ask("GET", "/clusters/*/control-plane/api/v1/configmaps")["items"]
    seats = sum(int(found["data"]["seats"]) for found in everything)
    print(f"{len(everything)} tenants have {seats} seats")
    connection.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
