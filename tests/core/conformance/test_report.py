"""Verdicts follow from the outcomes, waivers are strict, and certificates survive being written and rendered."""

import datetime as dt
import json
from pathlib import Path

import attrs
import pytest

from kplane_conformance.backend import Subject, Waiver, read_waiver
from kplane_conformance.case import Inventory, Leaf, View, case
from kplane_conformance.harness import InstalledHarness
from kplane_conformance.render import html, markdown, read
from kplane_conformance.report import SCHEMA, Entry, Verdict, certificate, from_dict, verdict
from kplane_conformance.session import Outcome, Result
from kplane_conformance.summary import describe
from kplane_core.errors import UsageError
from kplane_core.plugins.capabilities import Capability, Supported, Unsupported

TODAY = dt.date(2026, 6, 1)


def entry(outcome: str, name: str = "a") -> Entry:
    return Entry(name, "engine", outcome)


@pytest.mark.parametrize(
    ("outcomes", "missing", "hooks", "expected"),
    [
        (["passed", "skipped", "elsewhere"], [], [], Verdict.CONFORMANT),
        (["passed", "waived"], [], [], Verdict.WITH_WAIVERS),
        (["passed", "failed"], [], [], Verdict.NOT_CONFORMANT),
        (["passed", "unexpected pass"], [], [], Verdict.NOT_CONFORMANT),
        (["waived", "failed"], [], [], Verdict.NOT_CONFORMANT),
        (["passed", "provisional"], [], [], Verdict.CONFORMANT),
        (["passed"], ["b"], [], Verdict.INCOMPLETE),
        (["failed"], ["b"], [], Verdict.INCOMPLETE),
        (["passed", "harness error"], [], [], Verdict.INCOMPLETE),
        (["harness error", "failed"], [], [], Verdict.NOT_CONFORMANT),
        (["passed", "skipped"], [], ["List"], Verdict.INCOMPLETE),
        (["unavailable"], [], [], Verdict.UNAVAILABLE),
        ([], ["b"], [], Verdict.INCOMPLETE),
    ],
)
def test_the_verdict_is_computed(outcomes: list[str], missing: list[str], hooks: list[str], expected: Verdict) -> None:
    assert verdict([entry(outcome) for outcome in outcomes], missing, hooks) is expected


# --- waivers ---


def inventory() -> Inventory:
    found = Inventory()
    for name, options in (
        ("a", {}),
        ("rows", {"rows": (1, 2)}),
        ("absent", {"unless": Capability.TTL}),
        ("CreateWithTTL", {"upstream": "RunTestCreateWithTTL", "requires": [Capability.TTL]}),
    ):

        @case(name, inventory=found, **options)  # type: ignore[arg-type]  # each of its own type
        async def function(*_: object) -> None:
            """It promises | something."""

    return found


def leaf(name: str) -> Leaf:
    return next(one for one in inventory().leaves() if one.id == name)


NEW = Leaf("new", attrs.evolve(leaf("a").case, name="new", provisional="0.2"), None)


def subject(*waivers: Waiver, ttl: bool = True) -> Subject:
    declared = Supported() if ttl else Unsupported("it has no clock")
    return Subject(
        InstalledHarness("thing", "kplane-thing", "1.0", "kplane_thing", lambda: pytest.fail("never made")),
        {Capability.TTL: declared},
        {waiver.case: waiver for waiver in waivers},
        TODAY,
    )


WAIVER = Waiver("a", "it is known", "https://example.org/1", dt.date(2026, 7, 1))


@pytest.mark.parametrize(
    ("outcome", "expires", "expected"),
    [
        (Outcome.FAILED, dt.date(2026, 7, 1), Outcome.WAIVED),
        (Outcome.PASSED, dt.date(2026, 7, 1), Outcome.UNEXPECTED_PASS),
        (Outcome.FAILED, TODAY, Outcome.FAILED),
        (Outcome.PASSED, TODAY, Outcome.FAILED),
        (Outcome.SKIPPED, dt.date(2026, 7, 1), Outcome.SKIPPED),
        (Outcome.HARNESS_ERROR, dt.date(2026, 7, 1), Outcome.HARNESS_ERROR),
    ],
)
def test_waivers_are_strict(outcome: Outcome, expires: dt.date, expected: Outcome) -> None:
    judged = subject(attrs.evolve(WAIVER, expires=expires)).judge(leaf("a"), Result(outcome, "because"))
    assert judged.outcome is expected


def test_a_waiver_of_a_case_covers_its_rows() -> None:
    judged = subject(attrs.evolve(WAIVER, case="rows")).judge(leaf("rows[row-2]"), Result(Outcome.FAILED, "because"))
    assert judged.outcome is Outcome.WAIVED
    assert "it is known (https://example.org/1)" in judged.reason


@pytest.mark.parametrize(
    ("suite", "outcome", "expected"),
    [
        ("0.1.7", Outcome.FAILED, Outcome.PROVISIONAL),
        ("0.2.0", Outcome.FAILED, Outcome.FAILED),
        ("0.10", Outcome.FAILED, Outcome.FAILED),
        ("1.0.0", Outcome.FAILED, Outcome.FAILED),
        ("0.1.7", Outcome.PASSED, Outcome.PASSED),
        ("0.1.7", Outcome.HARNESS_ERROR, Outcome.HARNESS_ERROR),
    ],
)
def test_the_failure_of_a_new_case_counts_from_the_next_version_on(
    suite: str, outcome: Outcome, expected: Outcome
) -> None:
    judged = attrs.evolve(subject(), suite=suite).judge(NEW, Result(outcome, "because"))
    assert judged.outcome is expected
    assert (judged.reason == "the case is new and counts from suite 0.2 on; because") is (
        expected is Outcome.PROVISIONAL
    )


def test_a_waiver_of_a_new_case_is_as_strict_as_any() -> None:
    waived = attrs.evolve(subject(attrs.evolve(WAIVER, case="new")), suite="0.1.0")
    assert waived.judge(NEW, Result(Outcome.FAILED)).outcome is Outcome.WAIVED
    assert waived.judge(NEW, Result(Outcome.PASSED)).outcome is Outcome.UNEXPECTED_PASS


@pytest.mark.parametrize(
    "change", [{"reason": ""}, {"expires": "soon"}, {"issue": 3}, {"more": "x"}, {"case": ""}, {"reason": None}]
)
def test_a_waiver_must_be_complete(change: dict[str, object]) -> None:
    whole: dict[str, object] = {"case": "a", "reason": "r", "issue": "i", "expires": TODAY}
    assert read_waiver(whole) == Waiver("a", "r", "i", TODAY)
    with pytest.raises(ValueError, match="waiver"):
        read_waiver(whole | change)


@pytest.mark.parametrize("missing", ["case", "reason", "issue", "expires"])
def test_a_waiver_lacks_nothing(missing: str) -> None:
    whole: dict[str, object] = {"case": "a", "reason": "r", "issue": "i", "expires": TODAY}
    del whole[missing]
    with pytest.raises(ValueError, match="has the keys case, reason, issue, expires"):
        read_waiver(whole)


# --- certificates ---


def entries(**changes: str) -> dict[str, Entry]:
    asked = (*inventory().leaves(), *inventory().views())
    found = {one.id: Entry(one.id, one.case.group.value, "passed") for one in asked}
    for name, one in found.items():
        if outcome := changes.get(name.partition("@")[0]):
            found[name] = attrs.evolve(one, outcome=outcome, reason="of <this> | reason")
    return found


def test_a_case_for_an_unsupported_capability_is_not_asked_of_a_backend_that_supports_it() -> None:
    told = {name: one for name, one in entries().items() if not name.startswith("absent")}
    assert certificate(subject(), inventory(), told, seed=1).verdict is Verdict.CONFORMANT
    assert certificate(subject(ttl=False), inventory(), told, seed=1).verdict is Verdict.INCOMPLETE


def test_the_counts_show_run_skipped_and_total() -> None:
    one = certificate(subject(ttl=False), inventory(), entries(CreateWithTTL="skipped", a="failed"), seed=1)
    assert attrs.astuple(one.functions()) == (0, 1, 60)
    assert attrs.astuple(one.leaves()) == (0, 1, 267)
    assert {group: attrs.astuple(count) for group, count in one.groups().items()} == {
        "contract beyond upstream": (4, 0, 4)
    }
    assert one.verdict is Verdict.NOT_CONFORMANT


def test_a_missing_hook_leaves_the_upstream_battery_unproved() -> None:
    told = entries()
    told["CreateWithTTL"] = attrs.evolve(told["CreateWithTTL"], outcome="skipped", reason="no clock hook")
    assert certificate(subject(), inventory(), told, seed=1).verdict is Verdict.INCOMPLETE


def test_a_certificate_survives_its_file(tmp_path: Path) -> None:
    one = certificate(subject(WAIVER), inventory(), entries(a="waived"), seed=7, server="thingd 3")
    again = from_dict(json.loads(json.dumps(one.to_dict())))
    assert again.to_dict() == one.to_dict()
    document = one.to_dict()
    assert document["suite"]["digest"] == inventory().digest()
    assert document["suite"]["size"] == 5
    assert document["verdict"] == "with-waivers"
    assert document["waivers"][0]["expires"] == "2026-07-01"
    assert {"kplane-core", "python", "platform"} <= set(document["environment"])
    path = tmp_path / "report.json"
    path.write_text(json.dumps({"schema": SCHEMA, "certificates": [document]}))
    assert [found.backend for found in read([path])] == ["thing"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": 99, "certificates": []}', '{"schema": 1, "certificates": [{}]}']
)
def test_what_is_no_report_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"report\.json is not a conformance report"):
        read([path])


def test_the_matrix_has_a_footnote_for_whatever_did_not_simply_pass() -> None:
    one = certificate(subject(WAIVER), inventory(), entries(a="waived", CreateWithTTL="skipped"), seed=1)
    text = markdown([one])
    assert "| **thing** (kplane-thing 1.0) | with-waivers | 0/60 | 0/267[^1] | 3/3[^2] |" in text
    assert "[^1]: skipped: CreateWithTTL: of <this> | reason" in text
    assert "[^2]: waived: a: of <this> | reason" in text


def test_the_page_shows_the_same_and_escapes_what_it_shows() -> None:
    one = certificate(subject(WAIVER), inventory(), entries(a="waived", CreateWithTTL="skipped"), seed=1)
    page = html([one])
    assert "of &lt;this&gt; | reason" in page
    assert "<this>" not in page
    assert '<td class="verdict with-waivers">with-waivers</td>' in page
    assert "http://" not in page, "the page needs no server"
    for name in {name.partition("@")[0] for name in entries()} - {"absent"}:
        assert f">{name}<" in page


def test_what_was_seen_through_another_view_counts_in_its_own_column_and_for_the_verdict() -> None:
    told = entries()
    told["CreateWithTTL@clusters"] = attrs.evolve(told["CreateWithTTL@clusters"], outcome="failed")
    one = certificate(subject(), inventory(), told, seed=1)
    assert one.verdict is Verdict.NOT_CONFORMANT
    assert attrs.astuple(one.leaves()) == (1, 0, 267)
    assert {view: attrs.astuple(count) for view, count in one.views().items()} == {
        view.value: (4, 0, 4) for view in View if view is not View.STORE
    }
    text = "\n".join(describe(one))
    assert "failed: CreateWithTTL@clusters" in text
    assert "again through clusters" in text
    assert "| **thing** (kplane-thing 1.0) | 4/4 | 4/4 | 4/4, 1 failed | 4/4 |" in markdown([one])
    again = from_dict(json.loads(json.dumps(one.to_dict())))
    assert again.layers == one.layers
    del told["a@cache"]
    assert certificate(subject(), inventory(), told, seed=1).verdict is Verdict.INCOMPLETE


def test_the_summary_names_the_verdict_the_skips_and_one_failing_case() -> None:
    told = entries(CreateWithTTL="skipped", a="failed")
    text = "\n".join(describe(certificate(subject(), inventory(), told, seed=3)))
    assert text.startswith("thing: not-conformant")
    assert "run   0 / skipped   1 / total 267" in text
    assert "skipped: of <this> | reason: CreateWithTTL" in text
    assert "--kplane-backend=thing --kplane-case='a'" in text
    assert "commit 24a394e516bf" in text
