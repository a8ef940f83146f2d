"""CEL expressions, compiled and run by the optional package `cel-expr-python`; everything about it stays in here.

The package knows no types of ours: `self` and `oldSelf` are dynamic, so that a rule which names a field that the schema
lacks fails when it is run and not when it is defined. Its runtime counts no costs.
"""

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

from kplane_apiserver.schemas.cel_macros import expand_bind
from kplane_core.errors import KplaneError

EXTRA = "kplane-apiserver[cel]"

# What Kubernetes' CEL has and this runtime lacks. A rule that uses any of it cannot be judged here, though it is right.
_LACKING = re.compile(r"\bformat\.\w+\(|\btransform(?:List|Map|MapEntry)\b|\.(?:lastI|i)ndexOf\(|\bsemver\(")
_TWO_VARIABLES = re.compile(r"\.(?:all|exists|existsOne)\(\s*\w+\s*,\s*\w+\s*,")
_IDENTIFIER = re.compile(r"""(?P<text>r?(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'))|(?P<old>(?<![\w.])oldSelf\b)""")
_OPTIONAL_OLD = "(oldSelves.?value)"


class CelError(KplaneError):
    """An expression cannot be compiled or run.

    Args:
        detail: what CEL says.
        lacking: whether the expression uses what Kubernetes has and the runtime here has not.
    """

    def __init__(self, detail: str, *, lacking: bool = False) -> None:
        super().__init__(detail)
        self.lacking = lacking


class Expression:
    """A compiled expression.

    Args:
        text: the expression.
        optional_old: whether `oldSelf` is an optional value in it.

    Raises:
        CelError: it cannot be compiled.
    """

    __slots__ = ("_compiled", "optional_old", "text", "uses_old")

    def __init__(self, text: str, *, optional_old: bool = False) -> None:
        self.text = text
        self.optional_old = optional_old
        self.uses_old = any(match["old"] for match in _IDENTIFIER.finditer(text))
        source = _IDENTIFIER.sub(_with_optional_old, text) if optional_old else text
        self._compiled = _compiled(source)

    def __call__(self, values: Any) -> Any:
        """Return the expression's value.

        Args:
            values: what `self` and `oldSelf` are, as `bind` returned it.

        Raises:
            CelError: it has none.
        """
        try:
            result = self._compiled.eval(values)
        except (RuntimeError, TypeError) as error:
            raise CelError(_runtime_words(str(error))) from None
        if result.type().name() == "*error*" or result.type() == _cel().Type.ERROR:
            raise CelError(_runtime_words(str(result.value())))
        return result.plain_value()


def available() -> bool:
    """Return whether expressions can be compiled here."""
    try:
        _cel()
    except ImportError:
        return False
    return True


@lru_cache(maxsize=4096)
def compile_expression(text: str, *, optional_old: bool = False) -> Expression:
    """Return the compiled expression; the same one for the same text.

    Raises:
        CelError: it cannot be compiled.
    """
    return Expression(text, optional_old=optional_old)


def bind(new: Any, old: Any) -> Any:
    """Return the values that expressions are run on; to bind them once for many expressions is what makes rules fast.

    Args:
        new: `self`.
        old: `oldSelf`; None when there is none.
    """
    return _environment().Activation({"self": new, "oldSelf": old, "oldSelves": {} if old is None else {"value": old}})


def _with_optional_old(match: re.Match[str]) -> str:
    return _OPTIONAL_OLD if match["old"] else match[0]


def _compiled(text: str) -> Any:
    try:
        return _environment().compile(expand_bind(text) if "cel.bind" in text else text)
    except RuntimeError as error:
        lacking = bool(_LACKING.search(text) or _TWO_VARIABLES.search(text))
        detail = str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
        raise CelError(f"compilation failed: {detail}", lacking=lacking) from None


def _runtime_words(text: str) -> str:
    """Return CEL's complaint in the words that Kubernetes' own runtime has for the common ones."""
    _, _, detail = text.partition(": ")
    missing = re.match(r"Key not found in map : \"?(.*?)\"?$", detail)
    if missing:
        return f"no such key: {missing[1]}"
    if index := re.match(r"Index error: index=(-?\d+)", detail):
        return f"index out of bounds: {index[1]}"
    if detail.startswith("No matching overloads found"):
        return "no such overload"
    return "division by zero" if detail == "divide by zero" else detail or text


@cache
def _cel() -> Any:
    from cel_expr_python import cel  # noqa: PLC0415 (an optional package)

    return cel


@cache
def _environment() -> Any:
    from cel_expr_python.ext import ext_math, ext_optional, ext_strings  # noqa: PLC0415 (as above)

    cel = _cel()
    dynamic = cel.Type.DYN
    return cel.NewEnv(
        variables={"self": dynamic, "oldSelf": dynamic, "oldSelves": cel.Type.Map(cel.Type.STRING, dynamic)},
        extensions=[ext_math.ExtMath(), ext_optional.ExtOptional(), ext_strings.ExtStrings()],
        functions=_functions(cel),
    )


def _functions(cel: Any) -> list[Any]:
    from kplane_apiserver.schemas.cel_library import rows  # noqa: PLC0415 (nobody else needs what it imports)

    types: Mapping[str, Any] = {
        "string": cel.Type.STRING,
        "int": cel.Type.INT,
        "double": cel.Type.DOUBLE,
        "bool": cel.Type.BOOL,
        "dyn": cel.Type.DYN,
        "list": cel.Type.List(cel.Type.DYN),
        "map": cel.Type.Map(cel.Type.STRING, cel.Type.DYN),
    }
    overloads: dict[str, list[Any]] = {}
    for name, parameters, returned, impl in rows():
        member = name.startswith(".")
        overload = cel.Overload(
            "_".join((name.strip(".").replace(".", "_"), *parameters)),
            return_type=types[returned],
            parameters=[types[parameter] for parameter in parameters],
            is_member=member,
            impl=impl,
        )
        overloads.setdefault(name.lstrip("."), []).append(overload)
    return [cel.FunctionDecl(name, found) for name, found in overloads.items()]
