"""Encryption at rest: the exact layouts of Kubernetes' API server, key rotation, tampering, and no secret shown."""

import asyncio
import importlib
import os
import threading

import nacl.secret
import pytest
from cryptography.hazmat.primitives import padding
from cryptography.hazmat.primitives.ciphers import Cipher, aead, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nacl.bindings import crypto_secretbox, crypto_secretbox_open

from kplane_core.engine import EngineStore
from kplane_core.errors import CorruptObj, KeyNotFound, UsageError
from kplane_core.storage import IDENTITY, DeleteOptions, Resource, TransformError, TransformUnavailable
from kplane_core.storage.encryption import (
    AesCbc,
    AesGcm,
    EncryptionKey,
    PrefixChain,
    Secretbox,
    keyed_entry,
)
from kplane_memory.engine import MemoryEngine

# A busy machine is no failure.
PATIENT = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

KEY = "/registry/secrets/clusters/c1/default/db"
OTHER_KEY = "/registry/secrets/clusters/c2/default/db"
SECRET = bytes(range(32))
OTHER_SECRET = bytes(range(32, 64))
PLAIN = b'{"kind":"Secret","metadata":{"name":"db"}}'
CIPHERS = {"aescbc": AesCbc, "aesgcm": AesGcm, "secretbox": Secretbox}


def chain(*providers):
    """Return a chain of (provider, key name, secret), as a configuration makes it."""
    return PrefixChain([keyed_entry(kind, [EncryptionKey(name, secret)]) for kind, name, secret in providers])


# --- known answers: bytes that were made once, by the libraries alone --------------------------------------

# AES-CBC: NIST SP 800-38A F.2.5 (CBC-AES256), first block; the padding block follows by the same rules.
NIST_KEY = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
NIST_IV = bytes.fromhex("000102030405060708090a0b0c0d0e0f")
NIST_PLAIN = bytes.fromhex("6bc1bee22e409f96e93d7e117393172a")
NIST_BLOCK = bytes.fromhex("f58c4c04d6e5f1ba779eabfb5f7bfbd6")
# AES-GCM: the additional data of published vectors is no text, as a storage key is; the library alone gives the answer.
GCM_KEY = bytes.fromhex("feffe9928665731c6d6a8f9467308308" * 2)
GCM_NONCE = bytes.fromhex("cafebabefacedbaddecaf888")
# Secretbox: the vector of NaCl's own tests (tests/secretbox.c).
BOX_KEY = bytes.fromhex("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389")
BOX_NONCE = bytes.fromhex("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37")
BOX_PLAIN = bytes.fromhex(
    "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c61296cdc3c01233561f4"
    "1db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde048977eb48f59ffd4924ca1c60902e52"
    "f0a089bc76897040e082f937763848645e0705"
)
BOX_SEALED = bytes.fromhex(
    "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186ac0dfc17c98dce87b"
    "4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae90224368517acfeabd6bb3732bc0e9da"
    "99832b61ca01b6de56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74e355a5"
)


def test_aescbc_reads_and_writes_the_nist_vector(monkeypatch):
    monkeypatch.setattr(os, "urandom", lambda size: NIST_IV[:size])
    sealed = AesCbc(NIST_KEY).to_storage(NIST_PLAIN, KEY)
    assert sealed[:32] == NIST_IV + NIST_BLOCK
    assert len(sealed) == 48
    assert AesCbc(NIST_KEY).from_storage(sealed, OTHER_KEY) == (NIST_PLAIN, False)


def test_aesgcm_reads_and_writes_nonce_ciphertext_and_tag_bound_to_the_key(monkeypatch):
    monkeypatch.setattr(os, "urandom", lambda size: GCM_NONCE[:size])
    expected = GCM_NONCE + AESGCM(GCM_KEY).encrypt(GCM_NONCE, PLAIN, KEY.encode())
    assert AesGcm(GCM_KEY).to_storage(PLAIN, KEY) == expected
    assert AesGcm(GCM_KEY).from_storage(expected, KEY) == (PLAIN, False)
    assert len(expected) == 12 + len(PLAIN) + 16


def test_secretbox_reads_the_vector_of_nacl():
    assert Secretbox(BOX_KEY).from_storage(BOX_NONCE + BOX_SEALED, KEY) == (BOX_PLAIN, False)


# Whole stored values, fixed once: what a database written today must read as for ever.
STORED = {
    "aescbc": (
        "6465666768696a6b6c6d6e6f7071727344283a8a80a45cba29966b60a5c5bdab75d7d652fa8f2012aaf55c36922ed881b9e8"
        "ac97c4ac6c3ef4896d49610b7d86"
    ),
    "aesgcm": (
        "32333435363738393a3b3c3dbd7984a9ab58a3d94f548fe529888bda4a9176e4fd2cc38aa57b29a2cc11f5134e65e8713587"
        "658cec7191a109c0e307f1742d68ce76585637f4"
    ),
    "secretbox": (
        "464748494a4b4c4d4e4f505152535455565758595a5b5c5d7985cefb4665d32ec8d7d3b94a9a39ee93cadcbb13eff9ee4586"
        "23078bffc6e9aeb7734ca76ccb60c11563aa7a3c0e8d94ab90bb1476d6f9b87b"
    ),
}


@pytest.mark.parametrize("kind", CIPHERS)
def test_a_stored_value_of_another_day_still_reads(kind):
    stored = f"k8s:enc:{kind}:v1:key1:".encode() + bytes.fromhex(STORED[kind])
    assert chain((kind, "key1", SECRET)).from_storage(stored, KEY) == (PLAIN, False)


def raw_open(kind, secret, body, key):
    """Undo a stored body with nothing but the libraries, by the table of layouts."""
    if kind == "aescbc":
        decryptor = Cipher(algorithms.AES(secret), modes.CBC(body[:16])).decryptor()
        unpadder = padding.PKCS7(128).unpadder()
        return unpadder.update(decryptor.update(body[16:]) + decryptor.finalize()) + unpadder.finalize()
    if kind == "aesgcm":
        return AESGCM(secret).decrypt(body[:12], body[12:], key.encode())
    return crypto_secretbox_open(body[24:], body[:24], secret)


def raw_seal(kind, secret, plain, key):
    if kind == "aescbc":
        iv = os.urandom(16)
        padder = padding.PKCS7(128).padder()
        encryptor = Cipher(algorithms.AES(secret), modes.CBC(iv)).encryptor()
        return iv + encryptor.update(padder.update(plain) + padder.finalize()) + encryptor.finalize()
    if kind == "aesgcm":
        nonce = os.urandom(12)
        return nonce + AESGCM(secret).encrypt(nonce, plain, key.encode())
    nonce = os.urandom(24)
    return nonce + crypto_secretbox(plain, nonce, secret)


SIZES = [
    ("aescbc", 16),
    ("aescbc", 24),
    ("aescbc", 32),
    ("aesgcm", 16),
    ("aesgcm", 24),
    ("aesgcm", 32),
    ("secretbox", 32),
]


@pytest.mark.parametrize(("kind", "size"), SIZES)
@PATIENT
@given(plain=st.binary(max_size=70))
def test_the_layouts_are_those_of_the_libraries_alone(kind, size, plain):
    """In both directions, for every key size, across the block boundaries."""
    secret = OTHER_SECRET[:size]
    prefix = f"k8s:enc:{kind}:v1:k-1:".encode()
    transformer = chain((kind, "k-1", secret))
    stored = transformer.to_storage(plain, KEY)
    assert stored.startswith(prefix)
    assert raw_open(kind, secret, stored[len(prefix) :], KEY) == plain
    assert transformer.from_storage(prefix + raw_seal(kind, secret, plain, KEY), KEY) == (plain, False)


@pytest.mark.parametrize(("kind", "size"), [(kind, size) for kind in CIPHERS for size in (0, 8, 15, 31, 33, 64)])
def test_a_secret_of_another_size_is_refused_without_showing_it(kind, size):
    secret = b"\xaa" * size
    with pytest.raises(UsageError, match=f"not {size}") as caught:
        CIPHERS[kind](secret)
    assert repr(secret)[2:-1] not in str(caught.value) or not size


@pytest.mark.parametrize("kind", CIPHERS)
def test_the_same_value_never_looks_the_same_twice(kind):
    cipher = CIPHERS[kind](SECRET)
    assert len({cipher.to_storage(PLAIN, KEY) for _ in range(50)}) == 50


# --- tampering and moving --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["aesgcm", "secretbox"])
def test_no_flipped_bit_reads(kind):
    cipher = CIPHERS[kind](SECRET)
    sealed = cipher.to_storage(b"ab", KEY)
    for bit in range(len(sealed) * 8):
        altered = bytearray(sealed)
        altered[bit // 8] ^= 1 << bit % 8
        with pytest.raises(TransformError, match="authentication failed"):
            cipher.from_storage(bytes(altered), KEY)


@pytest.mark.parametrize("kind", CIPHERS)
def test_cut_and_empty_data_is_an_error(kind):
    """Every shorter piece: none may read, none may end in another exception."""
    cipher = CIPHERS[kind](SECRET)
    sealed = cipher.to_storage(PLAIN, KEY)
    for length in range(len(sealed)):
        if kind == "aescbc" and length >= 32 and length % 16 == 0:
            continue  # a whole block of CBC may happen to end in what looks like padding
        with pytest.raises(TransformError, match=f"^{kind}: "):
            cipher.from_storage(sealed[:length], KEY)


@pytest.mark.parametrize("padded", [b"x" * 15 + b"\0", b"x" * 15 + b"\x11", b"x" * 14 + b"\x01\x02", b"x" * 16])
def test_aescbc_refuses_padding_that_is_none(padded):
    iv = bytes(16)
    encryptor = Cipher(algorithms.AES(SECRET), modes.CBC(iv)).encryptor()
    with pytest.raises(TransformError, match="invalid padding"):
        AesCbc(SECRET).from_storage(iv + encryptor.update(padded) + encryptor.finalize(), KEY)


@pytest.mark.parametrize(("kind", "moves"), [("aescbc", True), ("aesgcm", False), ("secretbox", True)])
def test_only_aesgcm_ties_a_value_to_its_storage_key(kind, moves):
    """Somebody who can write to the database must not swap two clusters' secrets."""
    transformer = chain((kind, "key1", SECRET))
    stored = transformer.to_storage(PLAIN, KEY)
    if moves:
        assert transformer.from_storage(stored, OTHER_KEY) == (PLAIN, False)
    else:
        with pytest.raises(TransformError, match="authentication failed"):
            transformer.from_storage(stored, OTHER_KEY)


@pytest.mark.parametrize("kind", ["aesgcm", "secretbox"])
def test_another_secret_of_the_same_name_does_not_read(kind):
    stored = chain((kind, "key1", SECRET)).to_storage(PLAIN, KEY)
    with pytest.raises(TransformError, match="authentication failed"):
        chain((kind, "key1", OTHER_SECRET)).from_storage(stored, KEY)


# --- identity --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"k8s:enc:", b"k8s:enc:aescbc:v1:key1:xx", b"k8s:enc:kms:v2:x"])
def test_identity_refuses_what_is_encrypted(data):
    """Without the right configuration, ciphertext must never pass for an object."""
    with pytest.raises(TransformError, match="identity transformer tried to read encrypted data"):
        IDENTITY.from_storage(data, KEY)


def test_identity_passes_plaintext_on():
    assert IDENTITY.to_storage(PLAIN, KEY) is PLAIN
    assert IDENTITY.from_storage(PLAIN, KEY) == (PLAIN, False)
    assert IDENTITY.from_storage(b"k8s:en", KEY) == (b"k8s:en", False)


# --- the chain, and key rotation -------------------------------------------------------------------------


class Says:
    """A transformer whose answer is given; it writes its name before the data."""

    def __init__(self, answer, name=b""):
        self.answer, self.name = answer, name
        self.asked = []

    def from_storage(self, data, key):
        self.asked.append((data, key))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def to_storage(self, data, key):
        assert key == KEY
        return self.name + data


def test_the_first_entry_writes_and_its_prefix_is_taken_off_before_it_reads():
    first, second = Says((b"1", False), b"<"), Says((b"2", False))
    both = PrefixChain([(b"a:", first), (b"b:", second)])
    assert both.to_storage(b"data", KEY) == b"a:<data"
    assert both.from_storage(b"a:<data", KEY) == (b"1", False)
    assert first.asked == [(b"<data", KEY)]
    assert second.asked == []


@pytest.mark.parametrize(
    ("data", "stale", "expected"),
    [(b"a:x", False, False), (b"a:x", True, True), (b"b:x", False, True), (b"b:x", True, True)],
)
def test_what_another_than_the_first_wrote_is_stale(data, stale, expected):
    both = PrefixChain([(b"a:", Says((b"", stale))), (b"b:", Says((b"", stale)))])
    assert both.from_storage(data, KEY)[1] is expected


def test_an_error_does_not_end_the_search():
    """During rotation two entries may have the same prefix and different secrets."""
    both = PrefixChain([(b"a:", Says(TransformError("no"))), (b"a:", Says((b"yes", False)))])
    assert both.from_storage(b"a:x", KEY) == (b"yes", True)


def test_no_matching_prefix_has_its_own_words():
    with pytest.raises(TransformError, match=r"^no matching prefix found$"):
        PrefixChain([(b"a:", Says((b"", False)))]).from_storage(b"b:x", KEY)


def test_the_error_of_an_entry_without_prefix_is_not_told():
    silent = PrefixChain([(b"", IDENTITY), (b"k8s:enc:x:", Says(TransformError("told")))])
    with pytest.raises(TransformError, match=r"^told$"):
        silent.from_storage(b"k8s:enc:x:y", KEY)
    with pytest.raises(TransformError, match=r"^no matching prefix found$"):
        silent.from_storage(b"k8s:enc:z:y", KEY)


def test_all_errors_are_told_when_nothing_reads():
    both = PrefixChain([(b"a:", Says(TransformError("one"))), (b"a:", Says(TransformError("two")))])
    with pytest.raises(TransformError, match=r"^\[one, two\]$"):
        both.from_storage(b"a:x", KEY)


@pytest.mark.parametrize("prefix", [b"", b"a:"])
def test_data_that_could_not_be_looked_at_is_never_called_corrupt(prefix):
    """Unsafe deletion removes corrupt data: a key service that is down must not make data look like it."""
    both = PrefixChain([(prefix, Says(TransformUnavailable("down"))), (b"a:", Says(TransformError("no")))])
    with pytest.raises(TransformUnavailable, match="down"):
        both.from_storage(b"a:x", KEY)
    readable = PrefixChain([(prefix, Says(TransformUnavailable("down"))), (b"a:", Says((b"yes", False)))])
    assert readable.from_storage(b"a:x", KEY) == (b"yes", True)


def test_a_chain_without_entries_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        PrefixChain([])


def test_a_key_is_rotated_in_three_steps():
    """Add the new one to read, let it write, drop the old one once all is rewritten."""
    old, new = EncryptionKey("old", SECRET), EncryptionKey("new", OTHER_SECRET)
    before, during, after = ([old, new], [new, old], [new])
    stored = PrefixChain([keyed_entry("aesgcm", before)]).to_storage(PLAIN, KEY)
    assert stored.startswith(b"k8s:enc:aesgcm:v1:old:")
    rotating = PrefixChain([keyed_entry("aesgcm", during)])
    assert rotating.from_storage(stored, KEY) == (PLAIN, True)
    rewritten = rotating.to_storage(PLAIN, KEY)
    assert rewritten.startswith(b"k8s:enc:aesgcm:v1:new:")
    assert rotating.from_storage(rewritten, KEY) == (PLAIN, False)
    assert PrefixChain([keyed_entry("aesgcm", after)]).from_storage(rewritten, KEY) == (PLAIN, False)
    with pytest.raises(TransformError, match="no matching aesgcm key found"):
        PrefixChain([keyed_entry("aesgcm", after)]).from_storage(stored, KEY)


def test_names_that_begin_alike_are_told_apart():
    both = PrefixChain([keyed_entry("secretbox", [EncryptionKey("k", SECRET), EncryptionKey("k1", OTHER_SECRET)])])
    stored = chain(("secretbox", "k1", OTHER_SECRET)).to_storage(PLAIN, KEY)
    assert both.from_storage(stored, KEY) == (PLAIN, True)


# --- cost, concurrency, secrets, libraries ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "module", "name"),
    [("aescbc", algorithms, "AES"), ("aesgcm", aead, "AESGCM"), ("secretbox", nacl.secret, "SecretBox")],
)
def test_ciphers_are_built_once(kind, module, name, monkeypatch):
    """A key schedule per record would cost more than the encryption."""
    real, built = getattr(module, name), []

    def counting(secret):
        built.append(kind)
        return real(secret)

    monkeypatch.setattr(module, name, counting)
    transformer = chain((kind, "key1", SECRET))
    monkeypatch.setattr(importlib, "import_module", built.append)
    for _ in range(5):
        assert transformer.from_storage(transformer.to_storage(PLAIN, KEY), KEY) == (PLAIN, False)
    assert built == [kind]


@pytest.mark.parametrize("kind", CIPHERS)
def test_one_transformer_serves_many_threads(kind):
    transformer = chain((kind, "key1", SECRET))
    wrong = []

    def work(number):
        for index in range(100):
            plain = f"{number}-{index}".encode() * 20
            if transformer.from_storage(transformer.to_storage(plain, KEY), KEY) != (plain, False):
                wrong.append(plain)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("kind", CIPHERS)
def test_nothing_shows_a_secret(kind):
    secret = b"0123456789abcdefSECRETSECRETXYZ!"
    key = EncryptionKey("key1", secret)
    prefix, inner = keyed_entry(kind, [key])
    shown = [repr(one) + str(one) for one in (key, inner, PrefixChain([(prefix, inner)]), CIPHERS[kind](secret))]
    with pytest.raises(TransformError) as caught:
        inner.from_storage(b"key1:" + b"x" * 64, KEY)
    shown += [str(caught.value), repr(caught.value)]
    for text in shown:
        assert "SECRET" not in text
        assert secret.hex() not in text
    assert "key1" in repr(key)


@pytest.mark.parametrize(
    ("kind", "module", "library"),
    [
        ("aescbc", "cryptography", "cryptography"),
        ("aesgcm", "cryptography", "cryptography"),
        ("secretbox", "nacl", "PyNaCl"),
    ],
)
def test_a_missing_library_is_named_with_what_to_install(kind, module, library, monkeypatch):
    real = importlib.import_module

    def without(name, package=None):
        if name.partition(".")[0] == module:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(UsageError) as caught:
        CIPHERS[kind](SECRET)
    assert str(caught.value) == (
        f"encryption provider {kind!r} needs {library}, which is not installed: pip install 'kplane-core[encryption]'"
    )


# --- through a store -------------------------------------------------------------------------------------


def secrets_store(engine, transformer):
    return EngineStore(engine, Resource("secrets", "/secrets/", kind="Secret", transformer=transformer))


DB = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db", "namespace": "ns"}, "data": {"p": "cGFzcw=="}}


@pytest.mark.parametrize("kind", CIPHERS)
def test_a_store_keeps_ciphertext_and_answers_plaintext(kind):
    async def scenario():
        engine = MemoryEngine()
        store = secrets_store(engine, chain((kind, "key1", SECRET)))
        made = await store.create("/secrets/ns/db", DB)
        record = (await engine.read("/registry/secrets/ns/db")).record
        assert record.value.startswith(f"k8s:enc:{kind}:v1:key1:".encode())
        assert b"cGFzcw" not in record.value
        assert await store.get("/secrets/ns/db") == made
        assert (await store.get_list("/secrets/")).items == (made,)
        await engine.aclose()

    asyncio.run(scenario())


def test_a_rotated_key_rewrites_an_unchanged_object_once():
    async def scenario():
        engine = MemoryEngine()
        await secrets_store(engine, chain(("aescbc", "old", SECRET))).create("/secrets/ns/db", DB)
        rotated = secrets_store(engine, chain(("aesgcm", "new", OTHER_SECRET), ("aescbc", "old", SECRET)))
        before = await rotated.get("/secrets/ns/db")
        first = await rotated.guaranteed_update("/secrets/ns/db", lambda found, _meta: (found, None))
        second = await rotated.guaranteed_update("/secrets/ns/db", lambda found, _meta: (found, None))
        assert before.revision < first.revision == second.revision
        assert before.raw == first.raw
        record = (await engine.read("/registry/secrets/ns/db")).record
        assert record.value.startswith(b"k8s:enc:aesgcm:v1:new:")
        await engine.aclose()

    asyncio.run(scenario())


def test_a_value_moved_to_another_clusters_key_is_corrupt_there():
    async def scenario():
        engine = MemoryEngine()
        store = secrets_store(engine, chain(("aesgcm", "key1", SECRET)))
        await store.create("/secrets/clusters/c1/ns/db", DB)
        record = (await engine.read("/registry/secrets/clusters/c1/ns/db")).record
        await engine.write("/registry/secrets/clusters/c2/ns/db", record.value, expect=0)
        with pytest.raises(CorruptObj, match="authentication failed"):
            await store.get("/secrets/clusters/c2/ns/db")
        assert (await store.get("/secrets/clusters/c1/ns/db")).exists
        unsafe = DeleteOptions(expect_transform_or_decode_error=True)
        await store.delete("/secrets/clusters/c2/ns/db", options=unsafe)
        with pytest.raises(KeyNotFound):
            await store.get("/secrets/clusters/c2/ns/db")
        await engine.aclose()

    asyncio.run(scenario())
