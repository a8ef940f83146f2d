"""get_list over an engine: pages pinned to one snapshot, filters, continue tokens, unreadable items."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kplane_core.engine.interface import Compacted, Engine, Page, Record
from kplane_core.engine.reading import RecordReader, Unreadable
from kplane_core.engine.translate import translated
from kplane_core.errors import Expired, InternalError, KplaneError, StatusCause, StoreReadError, TooLargeResourceVersion
from kplane_core.storage.interface import ListOptions, ObjectList, StoredObject
from kplane_core.storage.keys import prefix_end
from kplane_core.storage.paging import ListPlan, encode_continue, plan_list

if TYPE_CHECKING:
    from kplane_core.storage.resource import Resource

_MAX_PAGE = 10_000
_MAX_UNREADABLE = 100


class Listing:
    """One list request on its way.

    Args:
        engine: where the records are.
        reader: turns them into objects.
        resource: what is listed.
        prefix: the full prefix, with its trailing slash.
        options: as the caller gave them.
        record_seen: told of every record read, for size estimation.
    """

    def __init__(
        self,
        engine: Engine,
        reader: RecordReader,
        resource: "Resource",
        prefix: str,
        options: ListOptions,
        record_seen: Callable[[Record], None] | None,
    ) -> None:
        self._engine = engine
        self._reader = reader
        self._resource = resource
        self._prefix = prefix
        self._end = prefix_end(prefix)
        self._limit = max(options.predicate.limit, 0)
        self._matches = options.predicate.matcher(resource.attributes)
        self._record_seen = record_seen
        self._plan = plan_list(
            prefix=prefix,
            recursive=True,
            resource_version=options.resource_version,
            match=options.resource_version_match,
            limit=self._limit,
            continue_token=options.predicate.continue_token,
        )
        self._items: list[StoredObject] = []
        self._unreadable: list[tuple[str, KplaneError]] = []
        self._revision = 0

    async def run(self) -> ObjectList:
        """Return the page.

        Raises:
            KplaneError: as `Store.get_list` promises.
        """
        plan = self._plan
        start = plan.start or self._prefix
        count = self._limit > 0 and self._matches is None
        page = await self._scan(start, plan.at, self._limit, count=count)
        self._revision = plan.at or page.revision
        if plan.minimum > page.revision:
            raise TooLargeResourceVersion(plan.minimum, page.revision)
        size = self._limit
        total = page.total
        while True:
            last_key, stopped = self._take(page)
            if stopped:
                return self._page(continue_after=last_key, remaining=total - self._limit if count else None)
            if not page.more:
                return self._page()
            if not page.records:
                raise InternalError(f"the database says that more follows below {self._prefix!r}, but returned nothing")
            if self._limit and len(self._items) >= self._limit:
                return self._page(continue_after=last_key, remaining=total - self._limit if count else None)
            size = min(size * 2, max(_MAX_PAGE, self._limit))
            page = await self._scan(page.records[-1].key + "\0", self._revision, size)

    async def _scan(self, start: str, at: int, limit: int, *, count: bool = False) -> Page:
        try:
            with translated(self._prefix):
                return await self._engine.scan(start, self._end, at=at, limit=limit, count=count)
        except Expired as error:
            if not self._plan.continued:
                raise
            cause = error.__cause__ if isinstance(error.__cause__, Compacted) else error
            raise self._expired_continue() from cause

    def _expired_continue(self) -> Expired:
        return Expired(Expired.CONTINUE, encode_continue(self._plan.start, self._prefix, -1))

    def _take(self, page: Page) -> tuple[str, bool]:
        """Evaluate a page's records; returns the last evaluated key and whether some were left over."""
        matches, limit, items = self._matches, self._limit, self._items
        if matches is None and not limit and not self._record_seen:
            known = self._reader.known(page.records)
            if known is not None:
                items.extend(known)
                return "", False
        last_key = ""
        for record in page.records:
            if limit and len(items) >= limit:
                return last_key, True
            last_key = record.key
            if self._record_seen:
                self._record_seen(record)
            try:
                found = self._reader.object(record)
            except Unreadable as error:
                self._report(record, error)
                continue
            if matches is None or matches(found.raw):
                items.append(found)
        return last_key, False

    def _report(self, record: Record, unreadable: Unreadable) -> None:
        """Note an unreadable item, or end the list with what was noted."""
        if not self._resource.corrupt_object_reports:
            raise self._with_partial(unreadable.error) from unreadable
        if not unreadable.corrupt:
            if not self._unreadable:
                raise self._with_partial(unreadable.error) from unreadable
            raise self._aggregated(StatusCause("UnexpectedServerResponse", str(unreadable.error))) from unreadable
        self._unreadable.append((record.key, unreadable.error))
        if len(self._unreadable) >= _MAX_UNREADABLE:
            truncated = StatusCause("FieldValueTooMany", "too many errors, the list is truncated")
            raise self._aggregated(truncated) from unreadable

    def _aggregated(self, last: StatusCause | None = None) -> KplaneError:
        causes = [StatusCause("UnexpectedServerResponse", str(error), key) for key, error in self._unreadable]
        more = f" (and {len(causes) - 1} more)" if len(causes) > 1 else ""
        if last:
            causes.append(last)
        message = (
            f"failed to read one or more {self._resource.group_resource} from the storage: {causes[0].message}{more}"
        )
        error = StoreReadError(message, name="list", kind=self._resource.group_resource, causes=causes)
        return self._with_partial(error)

    def _with_partial(self, error: KplaneError) -> KplaneError:
        error.partial = ObjectList(tuple(self._items), self._revision)
        return error

    def _page(self, *, continue_after: str = "", remaining: int | None = None) -> ObjectList:
        if self._unreadable:
            raise self._aggregated()
        token = encode_continue(continue_after + "\0", self._prefix, self._revision) if continue_after else ""
        return ObjectList(tuple(self._items), self._revision, token, remaining if token and remaining else None)


def plan_single(key: str, options: ListOptions) -> ListPlan:
    """Return the plan for a non-recursive list, which ignores limit and continue token.

    Raises:
        BadRequest: a bad version or match.
    """
    return plan_list(
        prefix=key,
        recursive=False,
        resource_version=options.resource_version,
        match=options.resource_version_match,
        limit=0,
        continue_token="",
    )
