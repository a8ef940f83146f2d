"""resourceVersions as text and number."""

from kplane_core.errors import InvalidError, StatusCause

_INT64_MAX = 9223372036854775807
_INT64_DIGITS = 19


def parse_resource_version(text: str) -> int:
    """Return the revision that a resourceVersion names: 0 for "" and "0".

    Args:
        text: what a client sent.

    Raises:
        InvalidError: it is not an unsigned decimal number within int64.
    """
    if not text:
        return 0
    # str.isdecimal alone would let other scripts' digits through, and int refuses thousands of them with its own error.
    digits = text.lstrip("0") or "0"
    if text.isascii() and text.isdecimal() and len(digits) <= _INT64_DIGITS and (value := int(digits)) <= _INT64_MAX:
        return value
    raise InvalidError(
        [StatusCause("FieldValueInvalid", f'Invalid value: "{text}": must be a number', "resourceVersion")]
    )


def compare_resource_versions(first: str, second: str) -> int:
    """Return -1, 0 or 1 as `first` is older than, equal to or newer than `second`; compares numbers, not text.

    Raises:
        InvalidError: one of them is no resourceVersion.
    """
    left, right = parse_resource_version(first), parse_resource_version(second)
    return (left > right) - (left < right)
