"""Kubernetes' encryption configuration document: what it means, what is refused, and that no secret is ever shown."""

import base64
import importlib
import json
import re
import textwrap

import pytest

from kplane_core.errors import UsageError
from kplane_core.storage import IDENTITY, TransformError
from kplane_core.storage.encryption_config import load_encryption_config

KEY = "/registry/secrets/ns/db"
PLAIN = b'{"metadata":{}}'
SECRET_BYTES = b"SECRETsecretSECRETsecretSECRET+/"
SECRET = base64.b64encode(SECRET_BYTES).decode()
OTHER = base64.b64encode(bytes(range(32))).decode()
IDENTITY_ONLY = [{"identity": {}}]


def keys(*names, secret=SECRET):
    return {"keys": [{"name": name, "secret": secret} for name in names]}


AESGCM = [{"aesgcm": keys("key1")}]


def rule(resources, providers=AESGCM):
    return {"resources": list(resources), "providers": list(providers)}


def document(*rules, **more):
    head = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration"}
    return head | {"resources": list(rules)} | more


@pytest.fixture
def load(tmp_path):
    """Load a document, a text or bytes from a file."""
    path = tmp_path / "encryption.yaml"

    def load(content):
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return load_encryption_config(path)

    return load


@pytest.fixture
def refused(load, tmp_path):
    """Return the message with which a document is refused, without the file's name; it never holds a secret."""

    def refused(content):
        with pytest.raises(UsageError) as caught:
            load(content)
        message = str(caught.value)
        assert "\n" not in message
        error: BaseException | None = caught.value
        while error is not None:
            for secret in (SECRET, OTHER, SECRET_BYTES.decode(), SECRET[:20]):
                assert secret not in str(error) + repr(error)
            error = error.__cause__ or error.__context__
        start = f"encryption configuration {tmp_path / 'encryption.yaml'}: "
        assert message.startswith(start)
        return message.removeprefix(start)

    return refused


# --- what it means ---------------------------------------------------------------------------------------

EXAMPLE = f"""
    # As the Kubernetes documentation shows it.
    apiVersion: apiserver.config.k8s.io/v1
    kind: EncryptionConfiguration
    resources:
      - resources: [secrets, configmaps, pandas.awesome.bears.example]
        providers:
          - aescbc:
              keys:
                - name: key1
                  secret: {SECRET}
                - name: key2
                  secret: "{OTHER}"
          - secretbox:
              keys: [{{name: key1, secret: {OTHER}}}]
          - identity: {{}}
      - resources: ['*.apps']
        providers: [{{identity: {{}}}}, {{aesgcm: {{keys: [{{name: k, secret: {SECRET}}}]}}}}]
      - resources:
          - '*.*'
        providers:
          - aesgcm:
              keys:
                - name: k
                  secret: {SECRET}
"""


@pytest.fixture
def example(load):
    return load(textwrap.dedent(EXAMPLE))


@pytest.mark.parametrize(
    ("group_resource", "prefix"),
    [
        ("secrets", b"k8s:enc:aescbc:v1:key1:"),
        ("configmaps", b"k8s:enc:aescbc:v1:key1:"),
        ("pandas.awesome.bears.example", b"k8s:enc:aescbc:v1:key1:"),
        ("deployments.apps", PLAIN),
        ("pods", b"k8s:enc:aesgcm:v1:k:"),
        ("secrets.example.com", b"k8s:enc:aesgcm:v1:k:"),
    ],
)
def test_the_first_provider_of_the_first_rule_that_names_a_resource_writes(example, group_resource, prefix):
    assert example.transformer_for(group_resource).to_storage(PLAIN, KEY).startswith(prefix)


def test_all_providers_and_keys_of_a_rule_read(example, load):
    secrets = example.transformer_for("secrets")
    for provider, name, secret, stale in [
        ("aescbc", "key1", SECRET, False),
        ("aescbc", "key2", OTHER, True),
        ("secretbox", "key1", OTHER, True),
    ]:
        writer = load(document(rule(["secrets"], [{provider: keys(name, secret=secret)}]))).transformer_for("secrets")
        assert secrets.from_storage(writer.to_storage(PLAIN, KEY), KEY) == (PLAIN, stale)
    assert secrets.from_storage(PLAIN, KEY) == (PLAIN, True)
    with pytest.raises(TransformError, match="no matching prefix found"):
        secrets.from_storage(b"k8s:enc:aesgcm:v1:k:xxx", KEY)


def test_decrypting_for_good_writes_plaintext_and_still_reads_ciphertext(example, load):
    """`identity` first is how Kubernetes documents going back."""
    apps = example.transformer_for("deployments.apps")
    writer = load(document(rule(["x"], [{"aesgcm": keys("k")}]))).transformer_for("x")
    assert apps.to_storage(PLAIN, KEY) == PLAIN
    assert apps.from_storage(PLAIN, KEY) == (PLAIN, False)
    assert apps.from_storage(writer.to_storage(PLAIN, KEY), KEY) == (PLAIN, True)


def test_without_identity_plaintext_does_not_read(load):
    strict = load(document(rule(["secrets"]))).transformer_for("secrets")
    with pytest.raises(TransformError, match="no matching prefix found"):
        strict.from_storage(PLAIN, KEY)


@pytest.mark.parametrize(
    ("wildcard", "covered", "not_covered"),
    [
        ("*.", ["secrets", "pods"], ["deployments.apps", "secrets.example.com"]),
        ("*.apps", ["deployments.apps"], ["pods", "x.apps.example.com", "apps"]),
        ("*.*", ["pods", "deployments.apps", "a.b.c"], []),
    ],
)
def test_wildcards_cover_a_group(load, wildcard, covered, not_covered):
    config = load(document(rule([wildcard])))
    assert config.resources == (wildcard,)
    for name in covered:
        assert config.transformer_for(name) is not IDENTITY, name
    for name in not_covered:
        assert config.transformer_for(name) is IDENTITY, name


def test_an_unnamed_resource_and_one_with_identity_alone_stay_on_the_fast_path(load):
    config = load(document(rule(["pods"], IDENTITY_ONLY), rule(["secrets"])))
    assert config.transformer_for("services") is IDENTITY
    assert config.transformer_for("pods") is IDENTITY


def test_a_resources_transformer_is_built_once(example):
    assert example.transformer_for("secrets") is example.transformer_for("secrets")


def test_a_resource_in_two_rules_is_written_by_the_first_and_read_by_both(load):
    both = load(document(rule(["secrets"], [{"aesgcm": keys("a")}]), rule(["secrets"], [{"aesgcm": keys("b")}])))
    first = load(document(rule(["secrets"], [{"aesgcm": keys("a")}]))).transformer_for("secrets")
    second = load(document(rule(["secrets"], [{"aesgcm": keys("b")}]))).transformer_for("secrets")
    found = both.transformer_for("secrets")
    assert first.from_storage(found.to_storage(PLAIN, KEY), KEY) == (PLAIN, False)
    assert found.from_storage(second.to_storage(PLAIN, KEY), KEY) == (PLAIN, True)


def test_the_same_provider_twice_is_how_two_secrets_share_a_name(load):
    """Kubernetes allows it; whatever reads, reads."""
    providers = [{"aesgcm": keys("k", secret=OTHER)}, {"aesgcm": keys("k")}]
    found = load(document(rule(["secrets"], providers))).transformer_for("secrets")
    older = load(document(rule(["secrets"], [{"aesgcm": keys("k")}]))).transformer_for("secrets")
    assert found.from_storage(older.to_storage(PLAIN, KEY), KEY) == (PLAIN, True)


def test_json_and_yaml_and_the_legacy_kind_say_the_same(load):
    spec = document(rule(["secrets"]))
    writer = load(spec).transformer_for("secrets")
    legacy = spec | {"apiVersion": "v1", "kind": "EncryptionConfig"}
    for content in (legacy, " \n" + json.dumps(spec, indent=2), "---\n" + json.dumps(spec)):
        reader = load(content).transformer_for("secrets")
        assert reader.from_storage(writer.to_storage(PLAIN, KEY), KEY) == (PLAIN, False)


def test_a_secret_may_be_folded_over_lines(load):
    """`base64` wraps its output."""
    folded = SECRET[:20] + "\r\n" + SECRET[20:] + "\n"
    assert load(document(rule(["secrets"], [{"aesgcm": keys("k", secret=folded)}])))


# --- what is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("# nothing\n", "is empty"),
        (b"\xff\xfe", "is not UTF-8 text"),
        ("{", "is not valid JSON (line 1, column 2)"),
        ('{"a": 1,\n "b"', "is not valid JSON (line 2, column 5)"),
        ("a: b: c", "is not valid YAML (line 1, column 5)"),
        ("a: 'b", "is not valid YAML (line 1, column 6)"),
        ("a: *b", "is not valid YAML (line 1, column 4)"),
        ("a: 1\n---\nb: 1", "is not valid YAML (line 2, column 1)"),
        ("a: \0", "is not valid YAML"),
        ('{"a":' * 100_000, "is nested too deeply"),
        ("[" * 3_000, "is nested too deeply"),
        ("- a", "must be a mapping with apiVersion, kind and resources"),
        ("text", "must be a mapping with apiVersion, kind and resources"),
        ('{"kind": "a", "kind": "b"}', "a field is set twice: 'kind'"),
        ("kind: a\nkind: b", "a field is set twice: 'kind'"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_text_that_is_no_document_is_refused_by_place_not_by_quotation(refused, content, message):
    assert refused(content) == message


def test_a_mistake_near_a_secret_does_not_quote_it(refused):
    for broken in (
        f"resources:\n- secret: {SECRET}: x",
        f"resources:\n- 'secret {SECRET}",
        f"resources:\n- *{SECRET_BYTES[:25].decode()}",
        f"{SECRET}\n: x: y",
        f'{{"secret": "{SECRET}" x',
        f"{{{SECRET}",
    ):
        assert re.fullmatch(r"is not valid (YAML|JSON)( \(line \d+, column \d+\))?", refused(broken))


@pytest.mark.parametrize(
    ("head", "value"),
    [
        ({"apiVersion": "v1"}, None),
        ({"kind": "EncryptionConfig"}, None),
        ({"kind": "Pod"}, None),
        ({"apiVersion": None}, None),
        ({"apiVersion": ["v1"]}, None),
        ({"kind": {}}, None),
    ],
)
def test_another_kind_of_document_is_refused_with_the_ones_that_are_read(refused, head, value):
    assert value is None
    message = refused(document(rule(["secrets"])) | head)
    assert message.startswith("is not an encryption configuration")
    for words in ("apiserver.config.k8s.io/v1", "EncryptionConfiguration", "v1 with kind EncryptionConfig"):
        assert words in message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (document(rule(["a"]), kinds=1), "unknown field 'kinds'; did you mean 'kind'?"),
        (document(rule(["a"]) | {"provider": []}), "resources[0]: unknown field 'provider'; did you mean 'providers'?"),
        (
            document(rule(["a"], [{"aesgmc": {}}])),
            "resources[0].providers[0]: unknown field 'aesgmc'; did you mean 'aesgcm'?",
        ),
        (
            document(rule(["a"]), rule(["b"], [{"aesgcm": {"key": []}}])),
            "resources[1].providers[0].aesgcm: unknown field 'key'; did you mean 'keys'?",
        ),
        (
            document(rule(["a"], [{"aesgcm": {"keys": [{"name": "a", "secert": SECRET}]}}])),
            "resources[0].providers[0].aesgcm.keys[0]: unknown field 'secert'; did you mean 'secret'?",
        ),
        (
            document(rule(["a"], [{"aesgcm": {"keys": [{"name": "a", SECRET: ""}]}}])),
            (
                "resources[0].providers[0].aesgcm.keys[0]: unknown field (its name is not shown: it may be a secret); "
                "known are name, secret"
            ),
        ),
        (
            document(rule(["a"], [{"identity": {"x": 1}}])),
            "resources[0].providers[0].identity: unknown field 'x'; known are none",
        ),
    ],
    ids=lambda value: str(value)[-50:],
)
def test_unknown_fields_are_refused_with_the_nearest_known_one(refused, content, message):
    assert refused(content) == message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (document(), "resources: must be a list with at least one entry"),
        (document() | {"resources": None}, "resources: must be a list with at least one entry"),
        (document() | {"resources": {}}, "resources: must be a list with at least one entry"),
        (document("x"), "resources[0]: must be a mapping"),
        (document(rule([])), "resources[0].resources: must be a list with at least one entry"),
        (document(rule(["a"], [])), "resources[0].providers: must be a list with at least one entry"),
        (document(rule(["a"]), {"resources": ["b"]}), "resources[1].providers: must be a list with at least one entry"),
        (document(rule(["a"], ["aesgcm"])), "resources[0].providers[0]: must be a mapping"),
        (
            document(rule(["a"], [{}])),
            "resources[0].providers[0]: must have exactly one of aescbc, aesgcm, secretbox, identity; it has 0",
        ),
        (
            document(rule(["a"], [{"identity": {}, "aesgcm": keys("k")}])),
            "resources[0].providers[0]: must have exactly one of aescbc, aesgcm, secretbox, identity; it has 2",
        ),
        (document(rule(["a"], [{"identity": None}])), "resources[0].providers[0].identity: must be a mapping"),
        (document(rule(["a"], [{"aescbc": None}])), "resources[0].providers[0].aescbc: must be a mapping"),
        (
            document(rule(["a"], [{"aescbc": {"keys": []}}])),
            "resources[0].providers[0].aescbc.keys: must be a list with at least one entry",
        ),
        (
            document(rule(["a"], [{"aescbc": {"keys": [7]}}])),
            "resources[0].providers[0].aescbc.keys[0]: must be a mapping",
        ),
    ],
    ids=lambda value: str(value)[-60:],
)
def test_missing_and_mistyped_parts_are_named_by_their_place(refused, content, message):
    assert refused(content) == message


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_kms_is_refused_with_what_is_supported(refused, version):
    kms = {"apiVersion": version, "name": "vault", "endpoint": "unix:///run/kms.sock"}
    assert refused(document(rule(["secrets"], [{"kms": kms}, {"identity": {}}]))) == (
        "resources[0].providers[0].kms: KMS providers (v1 and v2) are not supported; "
        "supported are aescbc, aesgcm, secretbox, identity"
    )


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ({"secret": SECRET}, ".name: must be a name, as a string"),
        ({"name": "", "secret": SECRET}, ".name: must be a name, as a string"),
        ({"name": 7, "secret": SECRET}, ".name: must be a name, as a string"),
        ({"name": "a:b", "secret": SECRET}, ".name: must not hold a colon, which ends the name in stored values"),
        ({"name": SECRET, "secret": "key1"}, ".secret: decodes to 3 bytes; it must be {} random bytes in base64"),
        ({"name": "k"}, ".secret: must be a string: {} random bytes in base64"),
        ({"name": "k", "secret": 12345}, ".secret: must be a string: {} random bytes in base64"),
        ({"name": "k", "secret": ""}, ".secret: must be a string: {} random bytes in base64"),
        ({"name": "k", "secret": SECRET[:-1]}, ".secret: is not base64; it must be {} random bytes in base64"),
        (
            {"name": "k", "secret": SECRET_BYTES.decode() + "!"},
            ".secret: is not base64; it must be {} random bytes in base64",
        ),
        ({"name": "k", "secret": "é" + SECRET}, ".secret: is not base64; it must be {} random bytes in base64"),
        (
            {"name": "k", "secret": SECRET_BYTES.decode() * 2},
            ".secret: decodes to 48 bytes; it must be {} random bytes in base64",
        ),
    ],
    ids=lambda value: str(value)[:30],
)
@pytest.mark.parametrize(
    ("provider", "sizes"), [("aescbc", "16, 24, 32"), ("aesgcm", "16, 24, 32"), ("secretbox", "32")]
)
def test_bad_keys_are_refused_without_a_word_of_them(refused, provider, sizes, key, message):
    place = f"resources[0].providers[0].{provider}.keys[0]"
    assert refused(document(rule(["a"], [{provider: {"keys": [key]}}]))) == place + message.format(sizes)


def test_two_keys_of_one_name_are_refused(refused):
    assert refused(document(rule(["a"], [{"aesgcm": keys("k", "l", "k")}]))) == (
        "resources[0].providers[0].aesgcm.keys[2].name: is the name of keys[0] too; names must differ"
    )


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "must be the name of a resource"),
        (7, "must be the name of a resource"),
        (None, "must be the name of a resource"),
        ("Secrets", "lower case"),
        ("*", "'*' is ambiguous"),
        ("apiserveripinfo", "not served"),
        ("serviceipallocations", "not served"),
        ("servicenodeportallocations", "not served"),
        ("events.events.k8s.io", "write 'events'"),
        ("*.events.k8s.io", "write 'events'"),
        ("ingresses.extensions", "was removed"),
        ("*.extensions", "was removed"),
        ("secrets.*", "across all groups"),
    ],
)
def test_resource_names_that_mean_nothing_are_refused(refused, name, why):
    message = refused(document(rule(["pods", name])))
    assert message.startswith("resources[0].resources[1]: ")
    assert why in message


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["a", "a"], "stands here twice"),
        (["a", "a."], "stands here twice"),
        (["*.*", "*.*"], "stands here twice"),
        (["secrets", "*."], "'*.' covers another"),
        (["*.", "secrets"], "'*.' covers another"),
        (["deployments.apps", "*.apps"], "'*.apps' covers another"),
        (["*.*", "*.apps"], "'*.*' covers another"),
        (["pods.x", "*.*"], "'*.*' covers another"),
    ],
)
def test_overlaps_in_one_list_are_refused(refused, names, why):
    message = refused(document(rule(names)))
    assert message.startswith("resources[0].resources: ")
    assert why in message


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("*.", "secrets"),
        ("*.", "*."),
        ("*.apps", "deployments.apps"),
        ("*.*", "secrets"),
        ("*.*", "*."),
        ("*.*", "*.*"),
    ],
)
def test_a_rule_that_could_never_apply_is_refused(refused, earlier, later):
    """Somebody who writes it believes that it applies."""
    message = refused(document(rule([earlier]), rule([later])))
    assert (
        message
        == f"resources[1].resources: {later!r} is masked by the earlier {earlier!r}, so this rule would never apply"
    )


@pytest.mark.parametrize(
    ("earlier", "later"),
    [("secrets", "*."), ("*.", "deployments.apps"), ("*.apps", "*."), ("*.apps", "*.*"), ("a", "a")],
)
def test_a_wider_rule_may_follow_a_narrower_one(load, earlier, later):
    assert load(document(rule([earlier]), rule([later])))


# --- files, libraries, representations -------------------------------------------------------------------


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"encryption configuration .*absent\.yaml: No such file or directory"):
        load_encryption_config(tmp_path / "absent.yaml")
    with pytest.raises(UsageError, match="Is a directory"):
        load_encryption_config(str(tmp_path))


@pytest.fixture
def without(monkeypatch):
    """Make a library look as if it were not installed."""
    real = importlib.import_module

    def without(library):
        def importing(name, package=None):
            if name.partition(".")[0] == library:
                raise ModuleNotFoundError(f"No module named {library!r}", name=library)
            return real(name, package)

        monkeypatch.setattr(importlib, "import_module", importing)

    return without


def test_json_needs_no_yaml(load, without):
    without("yaml")
    assert load(document(rule(["secrets"]))).transformer_for("secrets") is not IDENTITY
    with pytest.raises(UsageError, match=r"needs PyYAML, .*kplane-core\[encryption\].*JSON"):
        load(textwrap.dedent(EXAMPLE))


def test_only_the_libraries_of_the_used_providers_are_needed(load, without):
    without("nacl")
    assert load(document(rule(["secrets"])))
    with pytest.raises(UsageError, match=r"'secretbox' needs PyNaCl"):
        load(document(rule(["secrets"], [{"secretbox": keys("k")}])))


def test_the_configuration_shows_resources_and_no_secret(example):
    shown = repr(example) + str(example)
    assert "secrets" in shown
    assert "*.apps" in shown
    for secret in (SECRET, SECRET_BYTES.decode(), SECRET_BYTES.hex(), OTHER, "SECRET"):
        assert secret not in shown
