"""CEL expressions, compiled and run by the optional package `cel-expr-python`; everything about it stays in here.

The package knows no types of ours: `self` and `oldSelf` are dynamic, so that a rule which names a field that the schema
lacks fails when it is run and not when it is defined. What it may cost is bounded by `cel_cost`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, wraps
from typing import Any

import msgspec

from kplane_apiserver.schemas import cel_cost
from kplane_apiserver.schemas.cel_macros import growth, literal_patterns, rewritten
from kplane_apiserver.schemas.patterns import uncaptured
from kplane_core.errors import KplaneError

EXTRA = "kplane-apiserver[cel]"

_IDENTIFIER = re.compile(r"""(?P<text>r?(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'))|(?P<old>(?<![\w.])oldSelf\b)""")
_OPTIONAL_OLD = "(oldSelves.?value)"
_TO_STRING = re.compile(r"(?<![\w.])string(?=\s*\()")
_ANY = ("string", "int", "uint", "double", "bool", "bytes", "timestamp", "duration", "list", "map", "null")


class CelError(KplaneError):
    """An expression cannot be compiled or run.

    Args:
        detail: what CEL says.
    """


class CelCostError(CelError):
    """An expression costs more than it may."""


class Values:
    """What `self` and `oldSelf` are. To make this once for many expressions is what makes rules fast.

    Args:
        new: `self`, as rules see it.
        old: `oldSelf`; None when there is none.
        given: the same two as they are in the objects.
    """

    __slots__ = ("_given", "_size", "activation")

    def __init__(self, new: Any, old: Any, given: tuple[Any, Any] | None = None) -> None:
        old_selves = {} if old is None else {"value": old}
        self.activation = _environment().Activation({"self": new, "oldSelf": old, "oldSelves": old_selves})
        self._given = (new, old) if given is None else given
        self._size = -1

    @property
    def size(self) -> int:
        """The bytes that they take as JSON."""
        if self._size < 0:
            self._size = len(msgspec.json.encode(self._given))
        return self._size


class Expression:
    """A compiled expression.

    Args:
        text: the expression.
        optional_old: whether `oldSelf` is an optional value in it.

    Attributes:
        returns: the type of its value, as far as it is known: `BOOL`, `STRING`, `DYN`.

    Raises:
        CelError: it cannot be compiled.
    """

    __slots__ = ("_compiled", "_growth", "_weighs", "optional_old", "returns", "text", "uses_old")

    def __init__(self, text: str, *, optional_old: bool = False) -> None:
        self.text = text
        self.optional_old = optional_old
        self.uses_old = any(match["old"] for match in _IDENTIFIER.finditer(text))
        source = _IDENTIFIER.sub(_with_optional_old, text) if optional_old else text
        ready = rewritten(source)
        self._compiled = _compiled(source, ready)
        _check_patterns(source)
        self._growth = growth(source)
        self._weighs = self._growth > 1 or "kplane.made()" in ready
        self.returns: str = self._compiled.return_type().name()

    def __call__(self, values: Values) -> Any:
        """Return the expression's value.

        Args:
            values: what `self` and `oldSelf` are.

        Raises:
            CelCostError: it costs more than it may.
            CelError: it has none.
        """
        budget = cel_cost.current()
        if self._weighs:
            self._weigh(values, budget)
        try:
            result = self._compiled.eval(values.activation)
            if not budget.exhausted and result.type() != _cel().Type.ERROR:
                return result.plain_value()
            detail = str(result.value())
        except (RuntimeError, TypeError) as error:
            detail = str(error)
        if budget.exhausted:
            raise CelCostError("running out of cost budget")
        if "Iteration budget exceeded" in detail:
            raise CelCostError(f"its loops take {cel_cost.LOOP_LIMIT} rounds or more")
        raise CelError(_runtime_words(detail))

    def _weigh(self, values: Values, budget: cel_cost.Budget) -> None:
        size = self._growth * max(values.size, len(self.text))
        if size > cel_cost.GROWTH_LIMIT:
            raise CelCostError("its sums may be too large")
        budget.per_round = size


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


def _with_optional_old(match: re.Match[str]) -> str:
    return _OPTIONAL_OLD if match["old"] else match[0]


def _compiled(source: str, ready: str) -> Any:
    environment = _environment()
    # Addresses have to become texts too, but the runtime lets nobody add to its own function.
    for text in (ready, _TO_STRING.sub("kplane.string", ready) if "string" in ready else ready):
        try:
            return environment.compile(text)
        except RuntimeError as error:
            failure = error
    try:
        environment.compile(source)  # whose places are those that the author knows
    except RuntimeError as error:
        failure = error
    detail = str(failure).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
    raise CelError(f"compilation failed: {detail}") from None


def _check_patterns(source: str) -> None:
    """Refuse what is known to be no pattern now, and not when the rule is run."""
    for literal in literal_patterns(source):
        result = _environment().compile(f"''.matches({literal})").eval(data={})
        if result.type() == _cel().Type.ERROR:
            raise CelError(f"compilation failed: invalid matches argument: {literal}")


def _runtime_words(text: str) -> str:
    """Return CEL's complaint in the words that Kubernetes' own runtime has for the common ones."""
    _, _, detail = text.partition(": ")
    missing = re.match(r"Key not found in map : \"?(.*?)\"?$", detail)
    if missing:
        return f"no such key: {missing[1]}"
    if index := re.match(r"Index error: index=(-?\d+)", detail):
        return f"index out of bounds: {index[1]}"
    if detail.startswith("No matching overloads found") or detail == "no such overload":
        return "no such overload"
    return "division by zero" if detail == "divide by zero" else detail or text


@cache
def _cel() -> Any:
    from cel_expr_python import cel  # noqa: PLC0415 (an optional package)

    return cel


@cache
def _environment() -> Any:
    from cel_expr_python.ext import ext_bindings, ext_optional  # noqa: PLC0415 (as above)

    cel = _cel()
    dynamic = cel.Type.DYN
    return cel.NewEnv(
        config=cel.NewEnvConfigFromYaml("extensions:\n- name: two-var-comprehensions\n"),
        variables={"self": dynamic, "oldSelf": dynamic, "oldSelves": cel.Type.Map(cel.Type.STRING, dynamic)},
        extensions=[ext_optional.ExtOptional(), ext_bindings.ExtBindings()],
        functions=_functions(cel),
    )


@cache
def _find_all() -> Callable[[str, str], list[str]]:
    """Return what finds all parts of a text that a pattern matches, in time that grows with the text alone."""
    cel = _cel()
    environment = cel.NewEnv(
        config=cel.NewEnvConfigFromYaml("extensions:\n- name: optional\n- name: regex\n"),
        variables={"text": cel.Type.STRING, "pattern": cel.Type.STRING},
    )
    expression = environment.compile("regex.extractAll(text, pattern)")

    def find_all(text: str, pattern: str) -> list[str]:
        result = expression.eval(data={"text": text, "pattern": uncaptured(pattern)})
        if result.type() == cel.Type.ERROR:
            raise ValueError("the pattern cannot be read")
        found: list[str] = result.plain_value()
        return found

    return find_all


def _functions(cel: Any) -> list[Any]:
    from kplane_apiserver.schemas.cel_library import rows  # noqa: PLC0415 (nobody else needs what it imports)

    kinds = cel.Type
    types: Mapping[str, Any] = {name: getattr(kinds, name.upper()) for name in ("dyn", *_ANY)}
    types = {**types, "list": kinds.List(kinds.DYN), "map": kinds.Map(kinds.DYN, kinds.DYN)}
    overloads: dict[str, list[Any]] = {}
    for name, given, returned, impl in rows(_find_all()):
        for parameters in _each_type(given):
            overload = cel.Overload(
                "_".join((name.strip(".").replace(".", "_"), *parameters)) + ("_member" if name[0] == "." else ""),
                return_type=types[returned],
                parameters=[types[parameter] for parameter in parameters],
                is_member=name[0] == ".",
                impl=_returning(impl) if returned == "dyn" else impl,
            )
            overloads.setdefault(name.lstrip("."), []).append(overload)
    return [cel.FunctionDecl(name, found) for name, found in overloads.items()]


def _each_type(parameters: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the parameters once for each type, where one of them may have any: the runtime wants them one by one."""
    if "any" not in parameters:
        return [tuple(parameters)]
    return [tuple(kind if one == "any" else one for one in parameters) for kind in _ANY]


def _returning(impl: Callable[..., Any]) -> Callable[..., Any]:
    from kplane_apiserver.schemas.cel_library import plain  # noqa: PLC0415 (as above)

    @wraps(impl)
    def returning(*given: Any) -> Any:
        return plain(impl(*given))

    return returning
