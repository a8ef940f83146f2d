"""Times as kubectl shows them: `5s`, `3m20s`, `2d4h`."""

from datetime import UTC, datetime
from typing import Any

UNKNOWN = "<unknown>"
INVALID = "<invalid>"

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400

# Below this many seconds: the unit and its mark, and the finer unit shown beside it, if any.
_SCALE: tuple[tuple[float, int, str, int, str], ...] = (
    (2 * _MINUTE, 1, "s", 0, ""),
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (2 * _DAY, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
    (float("inf"), _YEAR, "y", 0, ""),
)


def human_duration(seconds: float) -> str:
    """Return a duration the way kubectl prints it: at most two units, coarser the longer it is."""
    whole = int(seconds)
    if whole < 0:
        return INVALID if whole < -1 else "0s"
    _, unit, mark, finer, finer_mark = next(row for row in _SCALE if whole < row[0])
    count, rest = divmod(whole, unit)
    rest = rest // finer if finer else 0
    return f"{count}{mark}{rest}{finer_mark}" if rest else f"{count}{mark}"


def parse_time(text: Any) -> float | None:
    """Return an RFC 3339 time as seconds since the epoch; None when it is none."""
    if not isinstance(text, str) or not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()


def age(text: Any, now: float) -> str:
    """Return how long ago an RFC 3339 time was.

    Args:
        text: the time, as it stands in an object.
        now: seconds since the epoch.

    Returns:
        The age, `<unknown>` when there is no time, `<invalid>` when it cannot be read.
    """
    if not text:
        return UNKNOWN
    moment = parse_time(text)
    return INVALID if moment is None else human_duration(now - moment)
