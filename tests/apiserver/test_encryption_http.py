"""Encryption at rest, seen from both ends: clients read plainly what the database holds in ciphers only."""

import asyncio
import base64
import contextlib
import json

import attrs
import httpx

from kplane_apiserver.server import ApiServer
from kplane_core.engine.factory import EngineConnection
from kplane_core.storage.encryption_config import load_encryption_config
from kplane_memory.engine import MemoryEngine

SECRETS = "/clusters/c1/control-plane/api/v1/namespaces/default/secrets"
PASSWORD = base64.b64encode(b"correct horse battery staple").decode()


def _document(folder, *keys, provider="aesgcm"):
    """Write a configuration that encrypts secrets with the first of these keys, and reads with all."""
    listed = [{"name": key, "secret": base64.b64encode(key.encode().ljust(32, b".")).decode()} for key in keys]
    resources = [{"resources": ["secrets"], "providers": [{provider: {"keys": listed}}, {"identity": {}}]}]
    path = folder / f"{'-'.join(keys)}.json"
    kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": resources}
    path.write_text(json.dumps(kind), encoding="utf-8")
    return path


@contextlib.asynccontextmanager
async def _serving(engine, document=None):
    connection = EngineConnection(engine)
    build = None
    if document is not None:
        config = load_encryption_config(document)

        def build(resource):
            return connection.store(attrs.evolve(resource, transformer=config.transformer_for(resource.group_resource)))

    async with (
        ApiServer(connection, build) as api,
        httpx.AsyncClient(transport=httpx.ASGITransport(api.app), base_url="http://kplane") as client,
    ):
        yield client


async def _raw(engine, name):
    page = await engine.scan("/", "0")
    (found,) = [record for record in page.records if record.key.endswith(f"/secrets/clusters/c1/default/{name}")]
    return found


def test_secrets_are_ciphers_in_the_database_and_plain_to_clients(tmp_path):
    async def scenario():
        engine = MemoryEngine()
        async with _serving(engine, _document(tmp_path, "first")) as client:
            created = await client.post(SECRETS, json={"metadata": {"name": "s"}, "data": {"password": PASSWORD}})
            assert created.status_code == 201
            value = (await _raw(engine, "s")).value
            assert value.startswith(b"k8s:enc:aesgcm:v1:first:")
            assert PASSWORD.encode() not in value
            assert b"password" not in value
            (listed,) = (await client.get(SECRETS)).json()["items"]
            got = (await client.get(f"{SECRETS}/s")).json()
            assert got == listed == created.json()
            assert got["data"] == {"password": PASSWORD}
            other = SECRETS.replace("secrets", "configmaps")
            await client.post(other, json={"metadata": {"name": "c"}, "data": {"k": "plain words"}})
            page = await engine.scan("/", "0")
            (config_map,) = [one for one in page.records if one.key.endswith("/configmaps/clusters/c1/default/c")]
            assert b"plain words" in config_map.value

    asyncio.run(scenario())


def test_after_a_rotation_an_update_that_changes_nothing_rewrites_the_record_with_the_new_key(tmp_path):
    async def scenario():
        engine = MemoryEngine()
        for name, document in (("plain", None), ("old", _document(tmp_path, "first"))):
            async with _serving(engine, document) as client:
                body = {"metadata": {"name": name}, "data": {"password": PASSWORD}}
                assert (await client.post(SECRETS, json=body)).status_code == 201
        assert PASSWORD.encode() in (await _raw(engine, "plain")).value
        async with _serving(engine, _document(tmp_path, "second", "first")) as client:
            for name in ("plain", "old"):
                before = await _raw(engine, name)
                assert b":second:" not in before.value
                current = (await client.get(f"{SECRETS}/{name}")).json()
                updated = await client.put(f"{SECRETS}/{name}", json=current)
                assert updated.status_code == 200
                after = await _raw(engine, name)
                assert after.value.startswith(b"k8s:enc:aesgcm:v1:second:")
                assert after.mod_revision > before.mod_revision
                again = await client.put(f"{SECRETS}/{name}", json=updated.json())
                assert again.json() == updated.json()
                assert (await _raw(engine, name)).mod_revision == after.mod_revision

    asyncio.run(scenario())
