"""Keys: which ones a store accepts, and how prefixes are built."""

from kplane_core.errors import InvalidKey, UsageError


def normalize_path_prefix(prefix: str) -> str:
    """Return a path prefix with one slash at each end and none doubled; "" becomes "/".

    Raises:
        UsageError: it has `.` or `..` segments.
    """
    segments = [segment for segment in prefix.split("/") if segment]
    if any(segment in {".", ".."} for segment in segments):
        raise UsageError(f"path prefix {prefix!r} must not have '.' or '..' segments")
    return "/" + "".join(segment + "/" for segment in segments)


def normalize_resource_prefix(prefix: str) -> str:
    """Return a resource prefix with a trailing slash.

    Raises:
        UsageError: it is empty, "/", or does not start with a slash.
    """
    if not prefix or not prefix.startswith("/") or prefix == "/":
        raise UsageError(f"resource prefix {prefix!r} must start with '/' and name a directory")
    return prefix if prefix.endswith("/") else prefix + "/"


def prepare_key(key: str, resource_prefix: str, *, recursive: bool) -> str:
    """Return the key in the form that storage uses.

    Args:
        key: what the caller asks for.
        resource_prefix: the store's directory, with a trailing slash.
        recursive: whether the key names a directory; a missing trailing slash is then added.

    Raises:
        InvalidKey: it is empty, has `.` or `..` segments, holds NUL or a lone surrogate, or lies outside the prefix.
    """
    if "/.." in key or "/." in key or key.startswith("."):
        _refuse_dots(key)
    if key in {"", "/"}:
        raise InvalidKey(f"empty key: {key!r}")
    if "\0" in key or not (key.isascii() or _encodable(key)):
        raise InvalidKey(f"invalid key: {key!r} holds characters that no key may hold")
    if recursive and not key.endswith("/"):
        key += "/"
    if not key.startswith(resource_prefix):
        raise InvalidKey(f"invalid key: {key!r} lacks resource prefix: {resource_prefix!r}")
    return key


def _refuse_dots(key: str) -> None:
    for segment in key.split("/"):
        if segment in {".", ".."}:
            raise InvalidKey(f"invalid key: {key!r} has a {segment!r} segment")


def _encodable(key: str) -> bool:
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def prefix_end(prefix: str) -> str:
    """Return the first key after every key below a directory.

    Args:
        prefix: a directory, with its trailing slash.
    """
    return prefix[:-1] + "0"  # "0" is the character after "/"
