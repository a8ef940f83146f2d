"""Whether the installed core is one that a plugin was made for, by what its distribution says it requires.

pip warns of a mismatch once, when something is installed; the operator who meets it later should be told again. Only
plain comparisons of release numbers are judged; whatever else a requirement may hold is pip's business.
"""

import operator
import re
from collections.abc import Callable, Iterable
from typing import Final

_REQUIREMENT: Final = re.compile(r"\s*kplane[-_.]core\s*(?:\[[^\]]*\])?\s*\(?(?P<clauses>[^;)]*)\)?\s*(?P<marker>;.*)?")
_CLAUSE: Final = re.compile(r"\s*(>=|<=|==|>|<)\s*([0-9]+(?:\.[0-9]+)*)\s*")
_RELEASE: Final = re.compile(r"[0-9]+(?:\.[0-9]+)*")

_Release = tuple[int, ...]
_COMPARE: Final[dict[str, Callable[[_Release, _Release], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}


def unmet(requirements: Iterable[str] | None, core: str) -> str | None:
    """Return the first comparison that the core's version fails, for example `>=0.9`; None when there is none.

    Args:
        requirements: of the plugin's distribution, as its metadata has them.
        core: the version of the installed core.
    """
    for requirement in requirements or ():
        found = _REQUIREMENT.fullmatch(requirement)
        if found is None or found["marker"]:  # it depends on an extra or a platform
            continue
        for clause in found["clauses"].split(","):
            if (parts := _CLAUSE.fullmatch(clause)) and not _holds(core, parts[1], parts[2]):
                return clause.replace(" ", "")
    return None


def _holds(core: str, comparison: str, wanted: str) -> bool:
    have, want = _release(core), _release(wanted)
    length = max(len(have), len(want))
    return _COMPARE[comparison](_padded(have, length), _padded(want, length))


def _release(version: str) -> _Release:
    found = _RELEASE.match(version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def _padded(release: _Release, length: int) -> _Release:
    return release + (0,) * (length - len(release))
