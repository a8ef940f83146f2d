"""What every distribution of the repository promises by its files."""

import re

from kplane_core.plugins.errors import COMMAND_PROVIDERS, PROVIDERS


def test_siblings_are_required_by_a_range(distribution):
    """A pinned sibling breaks the resolver of whoever wants a fix of one of them; an open one breaks at run time."""
    siblings = [text for text in distribution.pyproject["project"].get("dependencies", []) if text.startswith("kplane")]
    if distribution.name != "kplane-core":
        assert siblings, "a distribution without the core is none of kplane's"
    for requirement in siblings:
        assert re.fullmatch(r"kplane-[a-z]+(\[[a-z,]+\])?>=[0-9.]+,<[0-9.]+", requirement), requirement


def test_metadata_is_complete(distribution):
    """PyPI shows a summary, a page, a licence and the Pythons it is for."""
    project = distribution.pyproject["project"]
    assert project["license"] == "Apache-2.0"
    assert project["requires-python"] == ">=3.11"
    assert project["readme"] == "README.md"
    assert len(project["description"]) > 30
    page = (distribution.folder / "README.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {distribution.name}\n"), "the page begins with the name that pip installs"
    assert len(page.splitlines()) > 10, "the page tells what it is for and how to begin"


def test_only_the_announced_entry_point_groups_are_used(distribution):
    """`pytest11` slows every pytest of whoever installs us: only the two that need it may have it, and kept thin."""
    groups = set(distribution.pyproject["project"].get("entry-points", {}))
    assert groups <= {"kplane.backends", "kplane.conformance", "kplane.commands", "pytest11"}
    if "pytest11" in groups:
        assert distribution.name in {"kplane-conformance", "kplane-apiserver"}


def test_every_command_and_backend_is_known_by_name_where_it_is_not_installed(all_distributions):
    """Who asks for one in vain is told what to install."""
    commands, backends = {}, {}
    for distribution in all_distributions:
        points = distribution.pyproject["project"].get("entry-points", {})
        commands |= dict.fromkeys(points.get("kplane.commands", {}), distribution.name)
        backends |= dict.fromkeys(points.get("kplane.backends", {}), distribution.name)
    assert commands == COMMAND_PROVIDERS
    assert backends.items() <= PROVIDERS.items()


def test_code_lies_below_src_with_type_marker_and_without_tests(distribution):
    assert (distribution.source / "py.typed").exists()
    assert not list(distribution.folder.glob("src/**/test_*.py"))
    assert [path.name for path in (distribution.folder / "src").iterdir() if not path.name.endswith(".egg-info")] == [
        distribution.package
    ]


def test_all_distributions_carry_one_version(all_distributions):
    """They are released together, and the changelog speaks of one number."""
    versions = {one.name: one.pyproject["project"]["version"] for one in all_distributions}
    assert len(set(versions.values())) == 1, versions
    assert len(versions) >= 4


def test_no_file_names_a_place_of_one_machine(root, run_command):
    """A path of somebody's machine in the sources works there only."""
    listed = run_command(["git", "-c", f"safe.directory={root}", "ls-files", "-z"], cwd=root)
    names = [name for name in listed.stdout.split("\0") if name]
    if not names:
        names = [str(path.relative_to(root)) for path in root.rglob("*.py") if ".venv" not in path.parts]
    personal = re.compile(r"(?<!\w)" + "/" + r"(home|root|Users|work)/[A-Za-z.]")
    found = []
    for name in names:
        path = root / name
        if path.suffix in {".py", ".md", ".toml", ".json", ".cfg"} and path.exists():
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if personal.search(line):
                    found.append(f"{name}:{number}: {line.strip()[:100]}")
    assert found == []
