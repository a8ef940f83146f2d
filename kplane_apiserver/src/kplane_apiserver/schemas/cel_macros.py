"""The macro `cel.bind`, which the runtime lacks, written with one that it has: a list of one value that is mapped."""

import re

_BIND = "cel.bind("
_TOKEN = re.compile(
    r"""r?(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?<![\w.])cel\.bind\(|[()\[\]{},]|[^"'()\[\]{},c]+|.""", re.DOTALL
)
_ARGUMENTS = 3


def expand_bind(text: str) -> str:
    """Return an expression without `cel.bind`; one whose brackets do not match stays as it is, for CEL to refuse."""
    tokens = _TOKEN.findall(text)
    while _BIND in tokens:
        # The last one has none within it.
        start = len(tokens) - 1 - tokens[::-1].index(_BIND)
        found = _arguments(tokens, start + 1)
        if found is None or len(found[0]) != _ARGUMENTS:
            return text
        (name, value, body), end = found
        tokens[start:end] = _TOKEN.findall(f"([{value}].map({name.strip()}, {body})[0])")
    return "".join(tokens)


def _arguments(tokens: list[str], start: int) -> tuple[list[str], int] | None:
    """Return a call's arguments and the position behind it; None when it is not closed."""
    found, depth = [""], 0
    for position in range(start, len(tokens)):
        part = tokens[position]
        if part == ")" and depth == 0:
            return found, position + 1
        if part == "," and depth == 0:
            found.append("")
            continue
        depth += (part in {"(", "[", "{"}) - (part in {")", "]", "}"})
        found[-1] += part
    return None
