"""Certificates as documents: a Markdown matrix for the repository, and a page that needs no server."""

import json
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from string import Template
from typing import Final

import attrs

from kplane_conformance.case import Group, View
from kplane_conformance.report import SCHEMA, Certificate, Count, Entry, from_dict
from kplane_conformance.session import Outcome
from kplane_core.errors import UsageError

_TOLD: Final = {
    Outcome.SKIPPED.value,
    Outcome.ELSEWHERE.value,
    Outcome.WAIVED.value,
    Outcome.PROVISIONAL.value,
    Outcome.UNAVAILABLE.value,
    Outcome.HARNESS_ERROR.value,
    Outcome.FAILED.value,
    Outcome.UNEXPECTED_PASS.value,
}
_BAD: Final = {Outcome.FAILED.value, Outcome.UNEXPECTED_PASS.value, Outcome.HARNESS_ERROR.value}
_MANY: Final = 6


def read(paths: Sequence[Path]) -> Sequence[Certificate]:
    """Return the certificates in some reports, sorted by backend.

    Raises:
        UsageError: a file cannot be read, or is no report of this suite.
    """
    certificates: list[Certificate] = []
    for path in paths:
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document["schema"] != SCHEMA:
                raise ValueError(f"schema {document['schema']!r}, not {SCHEMA}")  # noqa: TRY301
            certificates += [from_dict(one) for one in document["certificates"]]
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path} is not a conformance report: {error}") from error
    return sorted(certificates, key=lambda one: (one.backend, one.version))


# --- the matrix, the same for both documents --------------------------------------------------------------------


@attrs.frozen
class Cell:
    """One field of the matrix: how many ran of how many, how many of those failed, and what is to be said of it."""

    count: Count
    failed: int
    notes: Sequence[str]

    @property
    def text(self) -> str:
        """The field in words."""
        bad = f", {self.failed} failed" if self.failed else ""
        return f"{self.count.run}/{self.count.total}{bad}"


def columns(certificates: Sequence[Certificate]) -> Sequence[str]:
    """Return the groups that any of the certificates counts, in their order."""
    present = {group for one in certificates for group in one.groups()}
    return [Group.UPSTREAM.value, *(group.value for group in Group if group.value in present)]


def cell(certificate: Certificate, group: str) -> Cell | None:
    """Return the field of a backend and a group; None when the suite had no such case."""
    count = certificate.leaves() if group == Group.UPSTREAM.value else certificate.groups().get(group)
    if count is None:
        return None
    mine = [entry for entry in certificate.entries if entry.group == group]
    failed = sum(entry.outcome in _BAD for entry in mine)
    return Cell(count, failed, tuple(_notes(mine)))


def _notes(entries: Sequence[Entry]) -> Iterator[str]:
    def key(entry: Entry) -> tuple[str, str]:
        # What failed is different every time; what was skipped has few reasons.
        return entry.outcome, entry.reason.partition("\n")[0]

    told = sorted((entry for entry in entries if entry.outcome in _TOLD), key=key)
    for (outcome, reason), same in groupby(told, key=key):
        names = [entry.id for entry in same]
        shown = ", ".join(names[:_MANY]) + (f" and {len(names) - _MANY} more" if len(names) > _MANY else "")
        yield f"{outcome}: {shown}: {reason}"


# --- Markdown -----------------------------------------------------------------------------------------------------


def markdown(certificates: Sequence[Certificate]) -> str:
    """Return the matrix of backends and groups, with a footnote for everything that did not simply pass."""
    groups = columns(certificates)
    footnotes: list[str] = []
    head = ["backend", "verdict", "upstream functions", *groups]
    rows = [_line(head), _line(["---"] * len(head))]
    for certificate in certificates:
        functions = certificate.functions()
        fields = [
            f"**{certificate.backend}** ({certificate.distribution} {certificate.version})",
            certificate.verdict.value,
            f"{functions.run}/{functions.total}",
        ]
        fields += [_marked(cell(certificate, group), footnotes) for group in groups]
        rows.append(_line(fields))
    about = [
        "# Backends",
        "",
        "Made by `kplane conformance render`; do not edit. A field says how many cases ran of how many there are.",
        "",
        *(f"- {line}" for line in _described(certificates)),
        "",
    ]
    notes = [f"[^{number}]: {text}" for number, text in enumerate(footnotes, 1)]
    return "\n".join([*about, *rows, "", *_layers(certificates), "", *notes]).rstrip() + "\n"


def _layers(certificates: Sequence[Certificate]) -> Sequence[str]:
    """Return the matrix of backends and of what stood between their stores and the cases."""
    views = [view.value for view in View if any(view.value in one.layers for one in certificates)]
    if not views:
        return ()
    rows = [_line(["backend, seen through", *views]), _line(["---"] * (len(views) + 1))]
    for one in certificates:
        fields = [layer_cell(one, view) for view in views]
        rows.append(_line([f"**{one.backend}** ({one.distribution} {one.version})", *fields]))
    return rows


def layer_cell(certificate: Certificate, view: str) -> str:
    """Return how many cases ran through a view, and how many of those failed; nothing when none was asked."""
    count = certificate.views().get(view)
    if count is None:
        return ""
    return Cell(count, sum(entry.outcome in _BAD for entry in certificate.layers[view]), ()).text


def _described(certificates: Sequence[Certificate]) -> Sequence[str]:
    upstream = sorted({str(one.suite["upstream"]) for one in certificates})
    return [*(f"Upstream cases are numbered as in {text}." for text in upstream), *map(_origin, certificates)]


def _origin(one: Certificate) -> str:
    parts = [
        f"{one.backend}: suite {one.suite['version']}",
        f"inventory {one.suite['digest']} of {one.suite['size']} cases",
        f"kplane-core {one.environment['kplane-core']}",
        f"Python {one.environment['python']}",
        *([one.server] if one.server else []),
    ]
    return ", ".join(parts) + "."


def _line(fields: Sequence[str]) -> str:
    return "| " + " | ".join(field.replace("|", "\\|") for field in fields) + " |"


def _marked(found: Cell | None, footnotes: list[str]) -> str:
    if found is None:
        return ""
    marks = ""
    for note in found.notes:
        if note not in footnotes:
            footnotes.append(note)
        marks += f"[^{footnotes.index(note) + 1}]"
    return found.text + marks


# --- HTML ---------------------------------------------------------------------------------------------------------

_PAGE: Final = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>kplane backends</title><style>
:root { --ink: #1c2733; --soft: #5b6b7b; --line: #dde4ea; --paper: #fff; --back: #f4f7f9; --good: #1a7f4b;
  --bad: #b3261e; --wait: #8a6100; --accent: #2f5fd0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e9ef; --soft: #93a1af; --line: #2c3743; --paper: #182029;
  --back: #10161c; --good: #58c88d; --bad: #ff8a80; --wait: #e0b455; --accent: #8fb0ff; } }
body { margin: 0; padding: 2rem 1rem 4rem; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 68rem; margin: auto; }
h1 { font-size: 1.6rem; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem; }
p { color: var(--soft); margin: .2rem 0 1.2rem; }
code, td.id { font-family: ui-monospace, monospace; font-size: .86em; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; background: var(--paper);
  border: 1px solid var(--line); border-radius: 8px; }
th, td { padding: .5rem .7rem; text-align: left; border-top: 1px solid var(--line); vertical-align: top; }
thead th { border-top: 0; color: var(--soft); font-weight: 600; font-size: .82rem; }
td.n { font-variant-numeric: tabular-nums; white-space: nowrap; }
sup a { color: var(--accent); text-decoration: none; margin-left: .15em; }
.verdict { font-weight: 650; white-space: nowrap; } .passed, .conformant { color: var(--good); }
.failed, .not-conformant, .unexpected-pass, .harness-error { color: var(--bad); }
.with-waivers, .incomplete, .unavailable, .waived, .provisional, .skipped, .elsewhere { color: var(--wait); }
details { margin: .5rem 0; background: var(--paper); border: 1px solid var(--line); border-radius: 8px; }
summary { cursor: pointer; padding: .5rem .8rem; font-weight: 600; } details table { border: 0; }
ol { color: var(--soft); padding-left: 1.5rem; } ol li:target { color: var(--ink); }
</style></head><body><main><h1>kplane backends</h1><p>$about</p>
<div class="scroll"><table><thead><tr>$head</tr></thead><tbody>$rows</tbody></table></div>
$notes$backends</main></body></html>
""")


def html(certificates: Sequence[Certificate]) -> str:
    """Return one page with the matrix, its footnotes, and every case of every backend."""
    groups = columns(certificates)
    footnotes: list[str] = []
    rows = "".join(_row(certificate, groups, footnotes) for certificate in certificates)
    listed = "".join(f'<li id="note-{number}">{escape(text)}</li>' for number, text in enumerate(footnotes, 1))
    return _PAGE.substitute(
        about="<br>".join(map(escape, _described(certificates))),
        head="".join(f"<th>{escape(text)}</th>" for text in ["backend", "verdict", "upstream functions", *groups]),
        rows=rows,
        notes=f"<h2>Notes</h2><ol>{listed}</ol>" if footnotes else "",
        backends="".join(map(_backend, certificates)),
    )


def _row(certificate: Certificate, groups: Sequence[str], footnotes: list[str]) -> str:
    functions = certificate.functions()
    provider = f"{certificate.distribution} {certificate.version}"
    fields = [
        f"<td><b>{escape(certificate.backend)}</b><br>{escape(provider)}</td>",
        f'<td class="verdict {certificate.verdict.value}">{certificate.verdict.value}</td>',
        f'<td class="n">{functions.run}/{functions.total}</td>',
    ]
    for group in groups:
        found = cell(certificate, group)
        marks = ""
        for note in found.notes if found else ():
            if note not in footnotes:
                footnotes.append(note)
            number = footnotes.index(note) + 1
            marks += f'<sup><a href="#note-{number}">{number}</a></sup>'
        fields.append(f'<td class="n">{escape(found.text) if found else ""}{marks}</td>')
    return f"<tr>{''.join(fields)}</tr>"


def _backend(certificate: Certificate) -> str:
    parts = [f"<h2>{escape(certificate.backend)}</h2>", _capabilities(certificate)]
    parts += [f"<p>seen through {view}: {escape(layer_cell(certificate, view))}</p>" for view in certificate.layers]
    for group in columns([certificate]):
        mine = [entry for entry in certificate.entries if entry.group == group]
        found = cell(certificate, group)
        if mine and found:
            rows = "".join(map(_case, mine))
            parts.append(
                f"<details><summary>{escape(group)}: {escape(found.text)}</summary><table>{rows}</table></details>"
            )
    return "".join(parts)


def _case(entry: Entry) -> str:
    style = entry.outcome.replace(" ", "-")
    return (
        f'<tr><td class="id">{escape(entry.id)}</td><td class="{style}">{escape(entry.outcome)}</td>'
        f'<td>{escape(entry.reason)}</td><td class="n">{entry.milliseconds:.1f} ms</td></tr>'
    )


def _capabilities(certificate: Certificate) -> str:
    rows = "".join(
        f'<tr><td class="id">{escape(name)}</td><td>{escape(text)}</td></tr>'
        for name, text in certificate.capabilities.items()
    )
    return f"<details><summary>declared capabilities</summary><table>{rows}</table></details>"
