"""From options to an open database: channel, credentials, instance, database, tables."""

import asyncio
import contextlib
import json
import os
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Final

import attrs
import google.auth
import grpc
from google.api_core.exceptions import AlreadyExists, FailedPrecondition, GoogleAPICallError, NotFound
from google.auth.exceptions import GoogleAuthError
from google.cloud.spanner_admin_database_v1 import DatabaseAdminAsyncClient
from google.cloud.spanner_admin_database_v1.services.database_admin.transports import DatabaseAdminGrpcAsyncIOTransport
from google.cloud.spanner_admin_instance_v1 import InstanceAdminAsyncClient
from google.cloud.spanner_admin_instance_v1.services.instance_admin.transports import InstanceAdminGrpcAsyncIOTransport
from google.cloud.spanner_v1.services.spanner.transports import SpannerGrpcAsyncIOTransport
from google.oauth2 import credentials as user_credentials
from google.oauth2 import service_account

from kplane_core.engine.interface import EngineUnreachable
from kplane_core.errors import Unreachable, UsageError
from kplane_spanner import schema
from kplane_spanner.calls import Calls
from kplane_spanner.database import Database
from kplane_spanner.errors import RowExists, SchemaError
from kplane_spanner.messages import COMMIT_TIMESTAMP, insert, key_set
from kplane_spanner.plugin import SpannerOptions
from kplane_spanner.sessions import SessionPool

_HOST: Final = "spanner.googleapis.com:443"
_SCHEMA_DEADLINE: Final = 30.0
_LOOK_AGAIN: Final = 0.25
#: Google's emulator runs one read-write transaction at a time and aborts the others; to queue here costs less.
_EMULATOR_TRANSACTIONS: Final = 1
_CHANNEL: Final = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 120_000),
    # A database that comes back is found soon, and a new connection does not wait for what an old one learned.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.use_local_subchannel_pool", 1),
]


@attrs.frozen
class Connected:
    """An open database.

    Attributes:
        channel: the one channel of this connection.
        database: the database on it.
        created_micros: when the database was created or restored; 0 when nobody asked.
    """

    channel: Any
    database: Database
    created_micros: int


async def open_database(options: SpannerOptions, *, deadline: float = _SCHEMA_DEADLINE) -> Connected:
    """Connect, and make or check the tables.

    Args:
        options: as the operator gave them.
        deadline: seconds for all of it.

    Raises:
        UsageError: an option is wrong.
        SchemaError: the database holds something else.
        Unreachable: Spanner gave no answer, or refused.
    """
    emulator = options.emulator_host or os.environ.get("SPANNER_EMULATOR_HOST", "")
    if options.create_instance and not emulator:
        raise UsageError(
            "--spanner-create-instance works on an emulator only (--spanner-emulator-host): an instance costs money, "
            "so its owner makes it, for example with gcloud spanner instances create"
        )
    channel = await _channel(options, emulator)
    try:
        calls = Calls(channel, database_name(options), options.timeout)
        pool = SessionPool(calls, options.max_sessions)
        slots = _EMULATOR_TRANSACTIONS if emulator else options.max_transactions
        database = Database(calls, pool, transactions=slots)
        async with asyncio.timeout(deadline):
            created = await _Preparation(channel, database, options).run()
            await pool.fill(options.min_sessions)
    except TimeoutError as error:
        await channel.close()
        raise Unreachable("", f"Spanner database {database_name(options)} gave no answer for {deadline:g} s") from error
    except EngineUnreachable as error:
        await channel.close()
        raise Unreachable("", str(error)) from error
    except BaseException:
        await channel.close()
        raise
    return Connected(channel, database, created)


def database_name(options: SpannerOptions) -> str:
    """Return the full name of the database."""
    return f"{_instance_name(options)}/databases/{options.database}"


def _instance_name(options: SpannerOptions) -> str:
    return f"projects/{options.project}/instances/{options.instance}"


async def _channel(options: SpannerOptions, emulator: str) -> Any:
    if emulator:
        return grpc.aio.insecure_channel(emulator, options=_CHANNEL)
    credentials = await asyncio.to_thread(_credentials, options)
    return SpannerGrpcAsyncIOTransport.create_channel(_HOST, credentials=credentials, options=_CHANNEL)


def _credentials(options: SpannerOptions) -> Any:
    scopes = SpannerGrpcAsyncIOTransport.AUTH_SCOPES
    file = options.credentials_file
    try:
        if file is not None:
            return _from_file(str(file), scopes)
        found, _ = google.auth.default(scopes=scopes)
    except (GoogleAuthError, OSError, ValueError, AttributeError) as error:
        # The library's sentences may quote the file.
        source = f"the file {file}" if file else "the environment"
        raise UsageError(
            f"no usable Google credentials in {source} ({type(error).__name__}): give --spanner-credentials-file, run "
            "gcloud auth application-default login, or name an emulator with --spanner-emulator-host"
        ) from None
    return found


def _from_file(file: str, scopes: Any) -> Any:
    """Return the credentials of a file that holds them itself; a file that names a program or a URL is not followed."""
    kind = json.loads(Path(file).read_text(encoding="utf-8")).get("type")
    match kind:
        case "service_account":
            return service_account.Credentials.from_service_account_file(file, scopes=scopes)
        case "authorized_user":
            return user_credentials.Credentials.from_authorized_user_file(file, scopes)
        case _:
            raise UsageError(
                f"--spanner-credentials-file {file} is neither a service account's key nor a user's credentials; leave "
                "other kinds to the environment ($GOOGLE_APPLICATION_CREDENTIALS)"
            )


class _Preparation:
    """Brings a database into the state in which an engine can use it.

    Args:
        channel: to Spanner.
        database: what to prepare.
        options: as the operator gave them.
    """

    def __init__(self, channel: Any, database: Database, options: SpannerOptions) -> None:
        self._database = database
        self._options = options
        self._retention = options.history_retention
        self._admin = DatabaseAdminAsyncClient(transport=DatabaseAdminGrpcAsyncIOTransport(channel=channel))
        self._instances = InstanceAdminAsyncClient(transport=InstanceAdminGrpcAsyncIOTransport(channel=channel))

    async def run(self) -> int:
        """Make and check everything; returns the microsecond of the database's creation, 0 when nobody asked."""
        created = 0
        if not self._options.skip_schema:
            if self._options.create_instance:
                await self._create_instance()
            created = await self._create_database()
        await self._create_tables()
        await self._sign()
        return created

    async def _create_instance(self) -> None:
        options = self._options
        project = f"projects/{options.project}"
        instance = {
            "config": f"{project}/instanceConfigs/emulator-config",
            "display_name": options.instance,
            "node_count": 1,
        }
        await self._admit(
            self._instances.create_instance(
                parent=project, instance_id=options.instance, instance=instance, timeout=options.timeout
            )
        )

    async def _create_database(self) -> int:
        """Make the database unless it exists, and return when that was."""
        options = self._options
        try:
            found = await self._answer(self._get_database())
        except NotFound:
            request = {
                "parent": _instance_name(options),
                "create_statement": f"CREATE DATABASE `{options.database}`",
                "extra_statements": list(schema.statements(options.database, self._retention)),
            }
            await self._admit(self._admin.create_database(request=request))
            found = await self._answer(self._get_database())
        # The emulator tells neither.
        if found.version_retention_period and schema.seconds(found.version_retention_period) < self._retention:
            await self._apply([schema.retention_statement(options.database, self._retention)])
        return int(found.create_time.timestamp() * 1e6) if found.create_time else 0

    async def _get_database(self) -> Any:
        # The client by itself would go on asking for an hour.
        return await self._admin.get_database(
            name=database_name(self._options), retry=None, timeout=self._options.timeout
        )

    async def _create_tables(self) -> None:
        """Return when the tables are as they must be, making them if there are none.

        Raises:
            SchemaError: they are not, and nobody changes that any more.
        """
        asked = False
        waited = 0.0
        while True:
            columns, indexes = await self._tables()
            problem = schema.difference(columns, indexes)
            if not problem:
                return
            name = database_name(self._options)
            if self._options.skip_schema or (columns and waited >= self._patience(asked=asked)):
                hint = "apply what `kplane spanner ddl` prints" if not columns else "use another --spanner-database"
                raise SchemaError(f"Spanner database {name} does not hold kplane's tables: {problem}; {hint}")
            if not columns and not asked:
                asked = True
                await self._apply(schema.statements(self._options.database, self._retention))
                continue
            # Another process may be in the middle of making them.
            await asyncio.sleep(_LOOK_AGAIN)
            waited += _LOOK_AGAIN

    def _patience(self, *, asked: bool) -> float:
        """Seconds for which a half-made schema may be somebody's work in progress."""
        return self._options.schema_patience * (2 if asked else 1)

    async def _tables(self) -> tuple[frozenset[tuple[str, str, str]], frozenset[str]]:
        columns = (await self._database.query(schema.LIST_COLUMNS)).rows
        indexes = (await self._database.query(schema.LIST_INDEXES)).rows
        found = frozenset((str(table), str(column), str(kind)) for table, column, kind in columns)
        return found, frozenset(str(name) for (name,) in indexes)

    async def _apply(self, statements: Any) -> None:
        request = {"database": database_name(self._options), "statements": list(statements)}
        try:
            await self._admit(self._admin.update_database_ddl(request=request))
        except FailedPrecondition:
            # Somebody else makes them at the same time; what came of it is looked at next.
            return

    async def _sign(self) -> None:
        """Write the schema version into a new database, and check that of an older one.

        Raises:
            SchemaError: another version made the tables.
        """
        columns = ("id", "schema_version", "compacted", "born")
        sign = insert(schema.META, columns, ("1", str(schema.VERSION), "0", COMMIT_TIMESTAMP))
        rows = (await self._database.read(schema.META, ("schema_version",), key_set([(1,)]))).rows
        if not rows:

            async def write(transaction: Any) -> None:
                transaction.mutations.append(sign)

            with contextlib.suppress(RowExists):  # another process was faster, maybe with another version: see below
                await self._database.transact(write, reads=False)
            rows = (await self._database.read(schema.META, ("schema_version",), key_set([(1,)]))).rows
        version = rows[0][0] if rows else "none"
        if version != str(schema.VERSION):
            raise SchemaError(
                f"Spanner database {database_name(self._options)} has schema version {version}, this kplane-spanner "
                f"knows version {schema.VERSION}: install the version that made it, or use another --spanner-database"
            )

    async def _admit(self, call: Awaitable[Any]) -> None:
        """Run an administrative operation to its end; that its work is done already is success."""
        try:
            operation = await self._answer(call)
            await self._answer(operation.result())
        except AlreadyExists:
            return

    async def _answer(self, call: Awaitable[Any]) -> Any:
        try:
            return await call
        except (AlreadyExists, FailedPrecondition, NotFound):
            raise
        except GoogleAPICallError as error:
            raise EngineUnreachable(
                f"Spanner refused the administration of {database_name(self._options)}: {error.message}"
            ) from error
