"""The functions and macros that Kubernetes 1.35 has in CEL, with the results that its documentation gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kplane_apiserver.schemas import cel_cost
from kplane_apiserver.schemas.cel import CelError, Expression, Values
from kplane_apiserver.schemas.cel_macros import growth, rewritten
from kplane_apiserver.schemas.patterns import compile_pattern, uncaptured

DIGEST = "sha256:6aefddb645ee6963afd681b1845c661d0ea4c3b20ab9db86d9e753b203d385f2"


def result(text, value=None):
    cel_cost.begin()
    return Expression(text)(Values(value, None))


@pytest.mark.parametrize(
    "text",
    [
        # comprehensions with two variables
        "{'a': 1, 'b': 2}.transformMap(k, v, v + 1) == {'a': 2, 'b': 3}",
        "{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v + 1) == {'b': 3}",
        "{1: 2}.transformMap(k, v, v)[1] == 2",
        "{'a': 'x'}.transformMapEntry(k, v, {v: k}) == {'x': 'a'}",
        "['a', 'b'].transformMapEntry(i, v, i > 0, {v: i}) == {'b': 1}",
        "[1, 2].transformList(i, v, i * v) == [0, 2] && [1, 2].transformList(i, v, i > 0, v) == [2]",
        "[1, 2].all(i, v, v > i) && [1, 2].exists(i, v, v == 1) && {'a': 1}.all(k, v, k == 'a' && v == 1)",
        "[1, 2].existsOne(i, v, v == 1) && [1, 2].existsOne(v, v == 1) && [1, 2].exists_one(v, v == 1)",
        "[[1, 2], [3]].map(l, l.map(x, x * 2)) == [[2, 4], [6]] && [1, 2, 3].map(x, x > 1, x * 2) == [4, 6]",
        # formats
        "!format.dns1123Label().validate('ok').hasValue() && format.dns1123Label().validate('No').hasValue()",
        "format.dns1123Subdomain().validate('a_b').value()[0].startsWith('a lowercase RFC 1123 subdomain')",
        "format.dns1035Label().validate('1a').hasValue() && !format.dns1035Label().validate('a1').hasValue()",
        "!format.qualifiedName().validate('x.io/y').hasValue() && format.qualifiedName().validate('/y').hasValue()",
        "!format.dns1123LabelPrefix().validate('a-').hasValue() && format.dns1123Label().validate('a-').hasValue()",
        "!format.dns1123SubdomainPrefix().validate('a.b-').hasValue()",
        "!format.dns1035LabelPrefix().validate('a-').hasValue()",
        "format.dns1035LabelPrefix().validate('-').hasValue()",
        "format.labelValue().validate('a b').hasValue() && !format.labelValue().validate('').hasValue()",
        "!format.uri().validate('http://e.com').hasValue() && format.uri().validate('x y').hasValue()",
        "format.uuid().validate('x').value() == ['does not match the UUID format']",
        "!format.byte().validate('aGk=').hasValue() && format.date().validate('2021-13-01').hasValue()",
        "!format.datetime().validate('2021-01-01T00:00:00Z').hasValue()",
        "format.named('uuid').value().validate('x').hasValue() && !format.named('odd').hasValue()",
        # semantic versions
        "semver('1.2.3').isLessThan(semver('1.10.0')) && semver('1.0.0-alpha').isLessThan(semver('1.0.0'))",
        "semver('1.0.0-alpha.1').compareTo(semver('1.0.0-alpha.beta')) == -1",
        "semver('1.0.0+a').compareTo(semver('1.0.0+b')) == 0 && semver('2.0.0').isGreaterThan(semver('1.9.9'))",
        "semver('v1.0', true) == semver('1.0.0') && semver('01.01.01', true) == semver('1.1.1')",
        "!isSemver('v1.0') && isSemver('v1.0', true) && !isSemver('01.0.0') && !isSemver('1.0-a', true)",
        "semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2 && semver('1.2.3').patch() == 3",
        # addresses and networks
        "ip.isCanonical('::1') && !ip.isCanonical('2001:DB8::ABCD') && string(ip('::1')) == '::1'",
        "!isIP('::ffff:1.2.3.4') && !isIP('fe80::1%eth0') && !isIP('010.0.0.1')",
        "ip('192.168.0.1').isGlobalUnicast() && !ip('255.255.255.255').isGlobalUnicast()",
        "!ip('ff00::1').isGlobalUnicast() && ip('2001:db8::abcd').isGlobalUnicast()",
        "ip('224.0.0.1').isLinkLocalMulticast() && !ip('224.0.1.1').isLinkLocalMulticast()",
        "ip('fe80::1').isLinkLocalUnicast() && ip('169.254.169.254').isLinkLocalUnicast()",
        "cidr('192.168.0.1/24').ip() == ip('192.168.0.1') && cidr('192.168.0.1/24').ip().family() == 4",
        "cidr('192.168.0.1/24').masked() == cidr('192.168.0.0/24') && cidr('::1/128').prefixLength() == 128",
        "cidr('192.168.0.0/16').containsCIDR('192.168.10.0/24') && !cidr('::/0').containsCIDR('10.0.0.0/8')",
        "!cidr('192.168.1.0/24').containsCIDR(cidr('192.168.2.0/24')) && string(cidr('::1/128')) == '::1/128'",
        # quantities
        "quantity('50k').add(quantity('20k')) == quantity('70k') && quantity('50k').sub(20000) == quantity('30k')",
        "quantity('50k').add(20).sub(quantity('100k')).sub(-50000) == quantity('20')",
        "!quantity('9999999999999999999999999999999999999G').isInteger() && quantity('-1').sign() == -1",
        # lists and sets
        "[1, 2, 2].indexOf(2) == 1 && [1, 2, 2].lastIndexOf(2) == 2 && ['a'].indexOf('b') == -1",
        "[true].indexOf(1) == -1 && [1.0].indexOf(1.1) == -1 && [[1]].indexOf([1]) == 0",
        "[1.0, 3.0].sum() == 4.0 && [duration('1m'), duration('1s')].sum() == duration('61s') && [].sum() == 0",
        "['b', 'a'].max() == 'b' && [timestamp('2020-01-01T00:00:00Z')].min() == timestamp('2020-01-01T00:00:00Z')",
        "['a', 'b', 'b', 'c'].isSorted() && ![2.0, 1.0].isSorted() && [].isSorted()",
        "sets.contains([1, 2], [2]) && !sets.contains([true], [1]) && sets.equivalent([1, [2]], [[2], 1, 1])",
        # texts
        "'abc'.indexOf('c') == 2 && 'abcb'.lastIndexOf('b') == 3 && 'abab'.indexOf('a', 1) == 2",
        "'abab'.lastIndexOf('b', 2) == 1 && 'hello'.charAt(1) == 'e' && 'hello'.charAt(5) == ''",
        "'a,b,c'.split(',') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c']",
        "'ab'.split('') == ['a', 'b'] && 'abc'.split('', 2) == ['a', 'bc'] && 'a'.split(',', 0) == []",
        "'aaa'.replace('a', 'b') == 'bbb' && 'aaa'.replace('a', 'b', 2) == 'bba' && 'ab'.replace('', '-') == '-a-b-'",
        "'abc'.substring(1) == 'bc' && 'abc'.substring(0, 1) == 'a' && ' x '.trim() == 'x'",
        "'AbÄ'.lowerAscii() == 'abÄ' && 'aBä'.upperAscii() == 'ABä' && ['a', 'b'].join('-') == 'a-b'",
        "'%s %d %.2f %x %X %b %o %%'.format(['a', 7, 1.5, 255, 'hi', 5, 8]) == 'a 7 1.50 ff 6869 101 10 %'",
        "'%s %s %s %s'.format([1.0, [1, 'b'], {'k': true}, null]) == '1 [1, b] {k: true} null'",
        "'%s %s'.format([duration('90s'), timestamp('2020-01-01T00:00:00Z')]) == '90s 2020-01-01T00:00:00Z'",
        "'%e'.format([1234.5]) == '1.234500e+03'",
        "'a1b22'.find('([a-z])([0-9]+)') == 'a1' && 'a1b22'.findAll('([a-z])[0-9]', 1) == ['a1']",
        # images
        "image('nginx').registry() == 'index.docker.io' && image('nginx').identifier() == 'latest'",
        "image('registry.k8s.io/a:t').tag() == 't' && image('registry.k8s.io/a/b').repository() == 'a/b'",
        f"image('a:t@{DIGEST}').containsDigest() && image('a:t@{DIGEST}').identifier() == '{DIGEST}'",
        "isImage('localhost:5000/a') && !isImage('registry.k8s.io//a') && !isImage('A')",
        # what only looks like a macro, and the rest
        "\"a.map(x, y)\" == 'a' + '.map(x, y)' && r'\\d)' == '\\\\d)' && '''a'b''' == \"a'b\" // .map(",
        "cel.bind(m, {'a': 1}, m.map(k, cel.bind(z, m[k], z + 1))) == [2]",
        "optional.of(1).optMap(x, x + 1).value() == 2 && [1][?1].orValue(7) == 7",
    ],
)
def test_expressions_have_the_results_of_kubernetes(text):
    assert result(text) is True


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[].min() == 0", "min called on empty list"),
        ("'abc'.charAt(9) == ''", "index out of range: 9"),
        ("'abc'.substring(2, 1) == ''", "invalid substring range. start: 2, end: 1"),
        ("quantity('1.5').asInteger() == 1", "cannot convert value to integer"),
        ("[1].join() == ''", "no such overload"),
        ("'%d'.format([]) == ''", "index 0 out of range"),
        ("{'a': 'x', 'b': 'x'}.transformMapEntry(k, v, {v: k}).size() == 1", "insert failed: a key already exists"),
        ("'x'.find('(' + '') == ''", "the pattern cannot be read"),
    ],
)
def test_what_has_no_result_says_why(text, words):
    with pytest.raises(CelError, match=f"^{words}".replace("(", r"\(")):
        result(text)


@pytest.mark.parametrize(
    "function", ["quantity", "url", "semver", "ip", "cidr", "image", "int", "timestamp", "duration"]
)
def test_a_text_that_cannot_be_read_is_not_shown(function):
    """It may be a secret: the rule may stand on the object, and the text anywhere in it."""
    with pytest.raises(CelError) as caught:
        result(f"{function}(self.a) == {function}('1')", {"a": "hunter2 is secret"})
    assert "hunter2" not in str(caught.value)


@given(st.text(alphabet="amp.(), []'\"xr\\/\n{}:1", max_size=30))
def test_an_expression_without_macros_stays_as_it_is(text):
    assert rewritten(text) == text or "map" in text


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("self.a == 'b' && self.list.all(x, x in ['a', 'b', 'c'])", 1),
        ("self.a + 'x'", 2),
        ("self.a + self.b + self.c", 3),
        ("cel.bind(a, self + self, cel.bind(b, a + a, b + b))", 8),
        ("cel.bind(a, [self, self], [a, a])", 4),
        ("{'a': self, 'b': self}", 2),
    ],
)
def test_how_large_a_value_can_become_is_known_before(text, most):
    assert growth(text) == most


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(a)(b)", "ab"),
        ("(?P<n>a)[(]", "a("),
        (r"\(a\)", "(a)"),
        ("(?i)(A)", "a"),
        (r"[[:alpha:])(](x)", "(x"),
        (r"\Q(\E", "("),
    ],
)
def test_a_pattern_that_captures_nothing_matches_the_same(pattern, text):
    search = compile_pattern(uncaptured(pattern))
    assert search is not None
    match = search(text)
    assert match
    assert match.groups() == ()
    assert match[0] == text
