"""From the options to a connection."""

from kplane_etcd.connection import EtcdConnection, Settings
from kplane_etcd.endpoints import Endpoint, TlsFiles
from kplane_etcd.plugin import EtcdOptions
from kplane_etcd.transport import Transport


async def connect_etcd(options: EtcdOptions) -> EtcdConnection:
    """Return a connection that has been answered.

    Raises:
        Unreachable: no member answered in time, or none lets us in.
        UsageError: a file cannot be used.
    """
    tls = TlsFiles(options.cafile, options.certfile, options.keyfile, options.server_name)
    transport = Transport(
        [Endpoint(url, tls) for url in options.servers],
        timeout=options.request_timeout,
        credentials=options.credentials if options.username else None,
    )
    settings = Settings(
        prefix=options.prefix,
        compaction_interval=options.compaction_interval,
        health_timeout=options.healthcheck_timeout,
        ready_timeout=options.readycheck_timeout,
        poll_interval=options.db_metric_poll_interval,
        dial_timeout=options.dial_timeout,
        lease_reuse=options.lease_reuse_duration,
        lease_objects=options.lease_max_object_count,
    )
    connection = EtcdConnection(transport, settings)
    try:
        await connection.start()
    except BaseException:
        await connection.aclose()
        raise
    return connection
