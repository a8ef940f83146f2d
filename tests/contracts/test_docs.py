"""The documentation says what the code says."""

import re
import sys

import pytest

from kplane_apiserver.commands.options import ServeOptions
from kplane_core.plugins.flags import Flags


def test_the_generated_parts_are_those_of_the_code(run_command, root):
    """docs/map.md names every module, docs/reference/api.md every public name; `make docs` writes both."""
    done = run_command([sys.executable, root / "tools" / "generate_docs.py", "--check"], cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_map_names_every_folder_of_the_code(root, all_distributions):
    text = (root / "docs" / "map.md").read_text(encoding="utf-8")
    for distribution in all_distributions:
        assert f"\n### {distribution.package}\n" in text
        for folder in distribution.source.rglob("*/"):
            if folder.name != "__pycache__" and any(folder.glob("*.py")):
                assert f"**{folder.relative_to(distribution.source).as_posix()}/**" in text


def test_links_between_documents_lead_somewhere(root):
    patterns = ("*.md", "docs/**/*.md", "*/README.md", "plugins/*/*.md")
    links = [
        (path, target)
        for pattern in patterns
        for path in root.glob(pattern)
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    ]
    assert len(links) > 10
    assert [link for link in links if "://" not in link[1] and not (link[0].parent / link[1]).exists()] == []


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE"])
def test_the_files_that_a_visitor_looks_for_are_there(root, name):
    assert len((root / name).read_text(encoding="utf-8").splitlines()) > 15


def test_the_server_page_lists_every_option_with_its_default(root):
    """The table in kplane_apiserver/README.md is the short form of `kplane serve --help`."""
    flags = Flags()
    flags.add("", ServeOptions, toml="serve")
    page = (root / "kplane_apiserver" / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(--[a-z-]+)` \| `?([^|`]*?)`? \|", page, re.MULTILINE))
    (section,) = flags.sections
    assert list(rows) == [setting.flag for setting in section.settings]
    for setting in section.settings:
        if setting.default is None:
            assert rows[setting.flag] == "none"
        elif isinstance(setting.default, bool):
            assert rows[setting.flag] == ("on" if setting.default else "off")
        elif setting.default != ():
            assert rows[setting.flag] == setting.show(setting.default), setting.flag
