"""Record what a real kubectl posts, as fixtures of the protobuf tests.

    python tools/generate_protobuf_fixtures.py --kubectl /usr/bin/kubectl

For each command two files are written to tests/apiserver/data/protobuf: `<name>.bin`, the body that kubectl posted to a
server that only listens, and `<name>.json`, what `--dry-run=client -o json` says that the object is.
"""

import argparse
import base64
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FIXTURES = Path(__file__).parent.parent / "tests/apiserver/data/protobuf"
BLOB = base64.b64decode("AP/+IGJpbmFyeQ==")
COMMANDS = {
    "configmap": "configmap settings --from-literal=color=blue --from-literal=empty= --from-file=blob=BLOB",
    "secret": "secret generic login --from-literal=user=admin --from-literal=password=example",
    "namespace": "namespace team-a",
    "deployment": "deployment web --image=nginx:1.27 --replicas=0 --port=80",
    "serviceaccount": "serviceaccount robot",
    "job": "job once --image=busybox -- sh -c date",
    "cronjob": "cronjob nightly --image=busybox --schedule=@daily -- date",
    "service-clusterip": "service clusterip web --tcp=80:8080 --tcp=443",
    "service-nodeport": "service nodeport web --tcp=80 --node-port=30080",
    "ingress": "ingress web --rule=example.com/path*=web:80,tls=cert --class=nginx",
    "rolebinding": "rolebinding readers --role=reader --user=ann --serviceaccount=default:robot",
    "clusterrolebinding": "clusterrolebinding admins --clusterrole=admin --group=ops",
    "quota": "quota limits --hard=cpu=1,memory=1Gi,pods=2 --scopes=BestEffort",
    "poddisruptionbudget": "poddisruptionbudget web --selector=app=web --min-available=50%",
    "poddisruptionbudget-zero": "poddisruptionbudget web --selector=app=web --max-unavailable=0",
    "priorityclass": "priorityclass high --value=1000 --description=urgent --preemption-policy=Never",
    "token": "token robot --duration=10m --audience=me",
}


@contextmanager
def listener() -> Iterator[tuple[str, list[bytes]]]:
    """Yield the address of a server that keeps each body and answers 500, and the list of those bodies."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers.get("Content-Length", 0))))
            self.send_error(500)

        def do_GET(self) -> None:
            self.send_error(500)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", bodies
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def record(kubectl: str, name: str, command: str, server: str, bodies: list[bytes]) -> None:
    """Run one command twice and write its two files."""
    with tempfile.TemporaryDirectory() as home:
        blob = Path(home, "blob")
        blob.write_bytes(BLOB)
        before, dashes, after = command.replace("BLOB", str(blob)).partition(" -- ")
        start = [kubectl, "--server", server, "create", *before.split()]
        end = [dashes.strip(), *after.split()] if dashes else []
        environment = {**os.environ, "HOME": home, "KUBECONFIG": os.devnull}
        bodies.clear()
        # The commands stand above; the program is the caller's own choice.
        subprocess.run([*start, *end], env=environment, capture_output=True, check=False)  # noqa: S603
        (body,) = filter(None, bodies)
        (FIXTURES / f"{name}.bin").write_bytes(body)
        if name == "token":  # has no dry run
            return
        dry = [*start, "--dry-run=client", "-o", "json", *end]
        shown = subprocess.run(dry, env=environment, capture_output=True, check=True)  # noqa: S603
        document = json.loads(shown.stdout)
        (FIXTURES / f"{name}.json").write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


def main() -> None:
    """Record every command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubectl", default="kubectl", help="version 1.32 or newer")
    kubectl = parser.parse_args().kubectl
    FIXTURES.mkdir(parents=True, exist_ok=True)
    with listener() as (server, bodies):
        for name, command in COMMANDS.items():
            record(kubectl, name, command, server, bodies)
            print(name)


if __name__ == "__main__":
    main()
