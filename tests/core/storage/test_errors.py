"""Errors: what a client is told, per verb, and the words and numbers of it."""

import pytest

from kplane_core.errors import (
    BadRequest,
    CorruptObj,
    DecodeError,
    Expired,
    InternalError,
    InvalidError,
    InvalidKey,
    InvalidObj,
    KeyExists,
    KeyNotFound,
    KplaneError,
    ResourceVersionConflicts,
    RVSetOnCreate,
    StatusCause,
    StorageCode,
    StorageError,
    StorageNotReady,
    StorageTimeout,
    StoreReadError,
    Subject,
    TooLargeResourceVersion,
    TooManyRequests,
    Unreachable,
    UsageError,
    status_for,
)

VERBS = ("get", "list", "create", "update", "delete", "watch")
PODS = Subject("pods", name="a")
PASS = (500, "Unknown")
NOT_FOUND, EXISTS, CONFLICT = (404, "NotFound"), (409, "AlreadyExists"), (409, "Conflict")
BUSY, INTERNAL, INVALID = (500, "ServerTimeout"), (500, "InternalError"), (422, "Invalid")
KEPT = (409, "Unknown")

TABLE = {
    KeyNotFound("/pods/a"): (NOT_FOUND, NOT_FOUND, PASS, NOT_FOUND, NOT_FOUND, PASS),
    KeyExists("/pods/a"): (PASS, PASS, EXISTS, CONFLICT, CONFLICT, PASS),
    ResourceVersionConflicts("/pods/a"): (KEPT, KEPT, KEPT, CONFLICT, CONFLICT, KEPT),
    InvalidObj("/pods/a", "uid"): (PASS, PASS, PASS, CONFLICT, CONFLICT, PASS),
    Unreachable("/pods/a"): (BUSY, BUSY, BUSY, BUSY, BUSY, PASS),
    StorageTimeout("/pods/a"): (PASS, BUSY, PASS, PASS, PASS, PASS),
    InternalError("x"): (INTERNAL,) * 6,
    CorruptObj("/pods/a"): (INTERNAL,) * 6,
    # Upstream passes it on and ends with 500 on most verbs; a field that is wrong is 422 on all of them here.
    InvalidError([StatusCause("FieldValueInvalid", "must be a number", "resourceVersion")]): (INVALID,) * 6,
    BadRequest("x"): ((400, "BadRequest"),) * 6,
    Expired(Expired.LIST): ((410, "Expired"),) * 6,
    TooLargeResourceVersion(9, 5): ((504, "Timeout"),) * 6,
    TooManyRequests("wait", 1): ((429, "TooManyRequests"),) * 6,
    RVSetOnCreate(): (INTERNAL,) * 6,
    DecodeError("x"): (INTERNAL,) * 6,
}


@pytest.mark.parametrize(("error", "answers"), TABLE.items(), ids=lambda value: type(value).__name__)
def test_each_verb_translates_a_storage_error_as_upstream_does(error, answers):
    found = [status_for(error, verb, PODS) for verb in VERBS]
    assert [(status.code, status.reason) for status in found] == list(answers)


def test_not_found_names_the_object_but_a_list_has_none():
    deployments = Subject("deployments", "apps", "a")
    status = status_for(KeyNotFound("/x"), "get", deployments)
    assert status.message == 'deployments.apps "a" not found'
    assert (status.name, status.group, status.kind) == ("a", "apps", "deployments")
    assert status_for(KeyNotFound("/x"), "list", deployments).message == 'deployments.apps "" not found'


def test_a_conflict_says_what_did_not_hold():
    status = status_for(InvalidObj("/pods/a", "Precondition failed: UID"), "delete", PODS)
    assert status.message.startswith('Operation cannot be fulfilled on pods "a": ')
    assert "Precondition failed: UID" in status.message


def test_a_server_timeout_is_a_500_with_a_retry():
    status = status_for(Unreachable("/pods/a"), "get", PODS)
    assert status.retry_after == 2
    assert "The get operation against pods could not be completed at this time" in status.message
    assert status.to_dict()["details"]["retryAfterSeconds"] == 2


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (KeyNotFound, 1),
        (KeyExists, 2),
        (ResourceVersionConflicts, 3),
        (InvalidObj, 4),
        (Unreachable, 5),
        (StorageTimeout, 6),
        (CorruptObj, 7),
    ],
)
def test_storage_errors_carry_upstreams_codes_and_words(kind, code):
    error = kind("/pods/a", "why", 7)
    assert isinstance(error, StorageError)
    assert error.code == code == StorageCode(code)
    assert str(error) == (
        f"StorageError: {error.text}, Code: {code}, Key: /pods/a, ResourceVersion: 7, AdditionalErrorMsg: why"
    )


def test_too_large_has_the_cause_that_clients_look_for():
    assert TooLargeResourceVersion(9, 5, 1).status().to_dict() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Timeout: Too large resource version: 9, current: 5",
        "reason": "Timeout",
        "details": {
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
        "code": 504,
    }


def test_an_expired_continue_carries_the_token_to_go_on_with():
    document = Expired(Expired.CONTINUE, "next").status().to_dict()
    assert document["metadata"] == {"continue": "next"}
    assert document["message"].startswith(
        "The provided continue parameter is too old to display a consistent list result."
    )
    assert Expired(Expired.LIST).status().to_dict()["metadata"] == {}


def test_invalid_lists_every_field():
    causes = [StatusCause("FieldValueInvalid", "bad", "spec.a"), StatusCause("FieldValueRequired", "missing", "spec.b")]
    one = InvalidError(causes[:1], name="x", group="apps", kind="Deployment").status()
    both = InvalidError(causes, name="x", kind="Pod").status()
    assert one.message == 'Deployment.apps "x" is invalid: spec.a: bad'
    assert both.message == 'Pod "x" is invalid: [spec.a: bad, spec.b: missing]'
    assert [cause["field"] for cause in both.to_dict()["details"]["causes"]] == ["spec.a", "spec.b"]


def test_a_read_error_carries_one_cause_per_record():
    error = StoreReadError("m", name="list", kind="pods", causes=[StatusCause("UnexpectedServerResponse", "m", "/k")])
    assert error.status().to_dict()["details"] == {
        "name": "list",
        "kind": "pods",
        "causes": [{"reason": "UnexpectedServerResponse", "message": "m", "field": "/k"}],
    }


@pytest.mark.parametrize(
    "error",
    [*TABLE, UsageError("x"), InvalidKey("x"), StorageNotReady("cache"), StorageNotReady()],
    ids=lambda error: type(error).__name__,
)
def test_every_error_is_of_one_tree_and_tells_a_whole_status(error):
    assert isinstance(error, KplaneError)
    document = error.status().to_dict()
    assert document["kind"] == "Status"
    assert document["message"]
    assert 400 <= document["code"] < 600
    assert error.partial is None
