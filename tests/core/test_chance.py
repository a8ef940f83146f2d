"""Names by chance: well formed, never the same twice, and not the same in a parent and its child."""

import subprocess
import sys
import uuid

import pytest

from kplane_core.chance import new_uid


def test_a_uid_is_a_random_uuid():
    made = [new_uid() for _ in range(2000)]
    assert len(set(made)) == len(made)
    for text in made:
        parsed = uuid.UUID(text)
        assert str(parsed) == text
        assert (parsed.version, parsed.variant) == (4, uuid.RFC_4122)


def test_every_digit_of_a_uid_is_drawn():
    fixed = {position for position in range(36) if len({new_uid()[position] for _ in range(300)}) == 1}
    assert fixed == {8, 13, 14, 18, 23}  # the dashes and the version


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
def test_a_forked_child_makes_other_uids_than_its_parent():
    code = (
        "import os, sys\n"
        "from kplane_core.chance import new_uid\n"
        "child = os.fork()\n"
        "sys.stdout.write(new_uid() + '\\n'); sys.stdout.flush()\n"
        "if not child: os._exit(0)\n"
        "os.waitpid(child, 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    parent, child = done.stdout.split()
    assert parent != child
