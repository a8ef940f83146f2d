"""The server's own answers have the codes, reasons and sentences that clients know from upstream."""

import pytest

from kplane_apiserver import apierrors
from kplane_core.errors import KplaneError, Subject

POD = Subject("pods", name="web")
DEPLOYMENT = Subject("deployments", "apps")


@pytest.mark.parametrize(
    ("error", "code", "reason", "message"),
    [
        (
            apierrors.NotAcceptable(["a", "b"]),
            406,
            "NotAcceptable",
            "only the following media types are accepted: a, b",
        ),
        (
            apierrors.RequestEntityTooLarge(3 << 20),
            413,
            "RequestEntityTooLarge",
            "Request entity too large: limit is 3145728 bytes (3 MiB)",
        ),
        (apierrors.path_not_found(), 404, "NotFound", "the server could not find the requested resource"),
        (apierrors.forbidden(POD, "it ends"), 403, "Forbidden", 'pods "web" is forbidden: it ends'),
        (apierrors.forbidden(DEPLOYMENT, "no"), 403, "Forbidden", "deployments.apps is forbidden: no"),
        (apierrors.request_timeout("60 s passed"), 504, "Timeout", "Timeout: 60 s passed"),
        (apierrors.service_unavailable("draining"), 503, "ServiceUnavailable", "draining"),
        (apierrors.unprocessable("no"), 422, "Invalid", "no"),
        (
            apierrors.invalid([apierrors.field_required("spec.a", "say it")], kind="Pod", name="web"),
            422,
            "Invalid",
            'Pod "web" is invalid: spec.a: Required value: say it',
        ),
    ],
)
def test_an_answer_has_upstreams_code_reason_and_sentence(
    error: KplaneError, code: int, reason: str, message: str
) -> None:
    status = error.status()
    assert (status.code, status.reason, status.message) == (code, reason, message)


def test_an_answer_about_an_object_names_it_in_its_details() -> None:
    details = apierrors.forbidden(Subject("deployments", "apps", "web"), "no").status().to_dict()["details"]
    assert details == {"name": "web", "group": "apps", "kind": "deployments"}


def test_a_conflict_of_generated_names_asks_to_try_again() -> None:
    status = apierrors.generate_name_conflict(POD).status()
    assert (status.code, status.reason, status.retry_after) == (409, "AlreadyExists", 1)
    assert "not able to generate a unique name" in status.message


@pytest.mark.parametrize(
    ("cause", "reason", "message"),
    [
        (apierrors.field_required("f"), "FieldValueRequired", "Required value"),
        (apierrors.field_invalid("f", "x", "bad"), "FieldValueInvalid", 'Invalid value: "x": bad'),
        (apierrors.field_invalid("f", None, "bad"), "FieldValueInvalid", "Invalid value: null: bad"),
        (apierrors.field_invalid("f", True, "bad"), "FieldValueInvalid", "Invalid value: true: bad"),
        (apierrors.field_invalid("f", 5, "bad"), "FieldValueInvalid", "Invalid value: 5: bad"),
        (apierrors.field_forbidden("f", "never"), "FieldValueForbidden", "Forbidden: never"),
        (
            apierrors.field_not_supported("f", "x", ["a", "b"]),
            "FieldValueNotSupported",
            'Unsupported value: "x": supported values: "a", "b"',
        ),
        (apierrors.field_too_long("f", 63), "FieldValueTooLong", "Too long: may not be more than 63 bytes"),
    ],
)
def test_a_fault_of_a_field_is_worded_as_upstream_words_it(
    cause: apierrors.StatusCause, reason: str, message: str
) -> None:
    assert (cause.reason, cause.message, cause.field) == (reason, message, "f")


@pytest.mark.parametrize(
    ("size", "text"), [(3 << 20, "3 MiB"), (1 << 30, "1 GiB"), (1536, "1.5 KiB"), (999, "999 bytes")]
)
def test_limits_are_written_as_people_write_them(size: int, text: str) -> None:
    assert apierrors.readable(size) == text
