"""The socket of `kplane serve`: which addresses are had, and how a refusal reads."""

import socket
from contextlib import closing

import pytest

from kplane_apiserver.wire.listening import base_url, listen
from kplane_core.errors import UsageError


def test_port_zero_finds_a_free_one():
    with closing(listen("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert port > 0
        assert base_url(listener) == f"http://127.0.0.1:{port}"


def test_a_port_in_use_is_named_with_the_remedy():
    with closing(listen("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(UsageError, match=rf"cannot listen on 127\.0\.0\.1 port {port}: .*in use; .*--port"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize("address", ["no.such.host.invalid", "300.1.1.1", "a b", "x" * 300])
def test_what_is_no_address_is_refused_in_one_line(address):
    with pytest.raises(UsageError, match="neither an address nor the name of one") as caught:
        listen(address, 0)
    assert "\n" not in str(caught.value)


def test_an_address_of_another_machine_is_refused():
    with pytest.raises(UsageError, match="must be an address of this machine"):
        listen("192.0.2.1", 0, exposed="")  # reserved for documentation: nobody has it


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1"])
def test_an_address_open_to_others_is_refused_before_anything_listens(address):
    with pytest.raises(UsageError, match=r"may do everything: .* --token-auth-file FILE, .* --insecure-allow-remote"):
        listen(address, 0)


def test_a_server_on_every_address_is_reached_through_loopback():
    with closing(socket.socket()) as bound:
        bound.bind(("0.0.0.0", 0))  # bound, but not listening
        assert base_url(bound) == f"http://127.0.0.1:{bound.getsockname()[1]}"


@pytest.mark.skipif(not socket.has_ipv6, reason="this Python has no IPv6")
def test_an_ipv6_address_stands_in_brackets():
    try:
        listener = listen("::1", 0)
    except UsageError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    with closing(listener):
        assert base_url(listener, "https") == f"https://[::1]:{listener.getsockname()[1]}"
