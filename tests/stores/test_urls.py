"""Store URLs: parsing and options."""

from __future__ import annotations

import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import StateStoreError
from holdfast.stores.registry import open_state_store
from holdfast.stores.urls import StoreURL

FORMS = [
    "memory:",
    "sqlite:///state.db",
    "sqlite:///folder/state.db",
    "sqlite:////var/lib/state.db",
    "sqlite:state.db",
    "file:///var/lib/agents",
    "file:agents",
    "file:./agents/here",
    "file://localhost/var/lib",
    "postgresql://host/db",
    "postgresql:///db",
    "postgresql:///db?host=localhost",
    "postgresql://a:5432,b:5433,[::1]:1/db",
    "redis://127.0.0.1:6379/0",
    "rediss://host",
    "redis://[::1]:6379/0",
    "s3://bucket",
    "s3://bucket/some/prefix/",
    "gs://bucket/prefix",
    "az://container/prefix",
    "nats://host:4222/bucket",
    "dapr://statestore",
    "dapr://StateStore",
    "etcd+v3.x-y://host",
    "s3://bucket/with%20space/%C3%A9",
]


def format_chain(error):
    """Return the messages of an error and its causes, as a traceback shows them."""
    return "".join(traceback.format_exception_only(error)) + (
        format_chain(error.__cause__) if error.__cause__ is not None else ""
    )


# ---- parts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", FORMS)
def test_a_url_without_secrets_is_shown_and_passed_on_unchanged(url):
    assert str(StoreURL(url)) == url
    assert StoreURL(url).text() == url
    assert repr(StoreURL(url)) == f"<StoreURL {url}>"


@pytest.mark.parametrize(
    ("url", "host", "port", "path"),
    [
        ("memory:", "", None, ""),
        ("sqlite:///state.db", "", None, "/state.db"),
        ("sqlite:////var/state.db", "", None, "//var/state.db"),
        ("file:///var/lib", "", None, "/var/lib"),
        ("file:lib/x", "", None, "lib/x"),
        ("redis://Host:6379/0", "Host", 6379, "/0"),
        ("redis://host:/0", "host", None, "/0"),
        ("redis://:6379", "", 6379, ""),
        ("redis://user:word@[::1]:7/0", "::1", 7, "/0"),
        ("postgresql://a:1,b:2/db", "a", 1, "/db"),
        ("postgresql://u:w@a,b:2/db", "a", None, "/db"),
        ("s3://bucket/%C3%A9%2F%3F%23", "bucket", None, "/é/?#"),
        ("  nats://host:65535/b\n", "host", 65535, "/b"),
        ("NATS://host", "host", None, ""),
    ],
)
def test_the_parts_of_a_url_are_parsed(url, host, port, path):
    parsed = StoreURL(url)
    assert (parsed.host, parsed.port, parsed.path) == (host, port, path)
    assert parsed.scheme == parsed.scheme.lower()


@pytest.mark.parametrize(
    ("url", "user", "password"),
    [
        ("redis://host", None, None),
        ("redis://user@host", "user", None),
        ("redis://user:word@host", "user", "word"),
        ("redis://:word@host", "", "word"),
        ("redis://user:@host", "user", ""),
        ("redis://us%40er:p%40ss%3Aw%2Frd@host", "us@er", "p@ss:w/rd"),
        ("redis://user:a:b@host", "user", "a:b"),
    ],
)
def test_user_and_password_are_decoded(url, user, password):
    parsed = StoreURL(url)
    assert (parsed.user, parsed.password) == (user, password)
    assert parsed.host == "host"
    assert parsed.text() == url


def test_the_driver_gets_the_options_that_are_left():
    url = StoreURL("postgres://user:p%40ss@host:1/db?timeout=5&sslmode=require&opt=a%20b%26c")
    assert url.take("timeout") == "5"
    assert url.text(scheme="postgresql") == (
        "postgresql://user:p%40ss@host:1/db?sslmode=require&opt=a%20b%26c"
    )
    assert "timeout=5" in str(url)


# ---- options -------------------------------------------------------------------------------------


def test_an_option_is_taken_once():
    url = StoreURL("memory:?a=1&b=&c=x%20y+z")
    assert url.take("a") == "1"
    assert url.take("a") is None
    assert url.take("a", "default") == "default"
    assert url.take("b") == ""
    assert url.take("c") == "x y z"
    url.reject_unknown_options()


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0.0), ("5", 5.0), ("0.25", 0.25), ("1e3", 1000.0)]
)
def test_a_number_is_parsed(text, number):
    assert StoreURL(f"memory:?n={text}").take_number("n", 7.0) == number
    assert StoreURL("memory:").take_number("n", 7.0) == 7.0


@pytest.mark.parametrize("text", ["", "x", "-1", "nan", "inf", "-inf", "1,5", "five"])
def test_an_invalid_number_is_rejected(text):
    with pytest.raises(
        StateStoreError, match="option n of the memory URL must be a number of at least 0"
    ):
        StoreURL(f"memory:?n={text}").take_number("n", 7.0)


def test_a_number_below_its_minimum_is_rejected():
    assert StoreURL("memory:?n=1").take_number("n", 7.0, least=1) == 1.0
    with pytest.raises(StateStoreError, match="of at least 1, got '0.5'"):
        StoreURL("memory:?n=0.5").take_number("n", 7.0, least=1)


def test_a_count_is_a_whole_number():
    assert StoreURL("memory:?n=12").take_count("n", 7) == 12
    assert StoreURL("memory:").take_count("n", 7) == 7
    for text in ("", "x", "-1", "1.5", "1e3", "²", "9" * 10):
        with pytest.raises(StateStoreError, match="a whole number of at least 0"):
            StoreURL(f"memory:?n={text}").take_count("n", 7)
    with pytest.raises(StateStoreError, match="of at least 2, got '1'"):
        StoreURL("memory:?n=1").take_count("n", 7, least=2)


@pytest.mark.parametrize(
    ("text", "flag"),
    [(text, True) for text in ("1", "true", "TRUE", "yes", "on")]
    + [(text, False) for text in ("0", "false", "False", "no", "off")],
)
def test_a_flag_is_parsed(text, flag):
    assert StoreURL(f"memory:?f={text}").take_flag("f") is flag
    assert StoreURL("memory:").take_flag("f") is False


@pytest.mark.parametrize("text", ["", "2", "maybe", "truee"])
def test_an_invalid_flag_is_rejected(text):
    with pytest.raises(
        StateStoreError, match=f"option f of the memory URL must be true or false, got '{text}'"
    ):
        StoreURL(f"memory:?f={text}").take_flag("f")


def test_an_unknown_option_is_rejected_with_the_known_ones():
    with pytest.raises(StateStoreError) as caught:
        StoreURL("redis://host?shape=round").reject_unknown_options(("timeout", "patience"))
    assert str(caught.value) == (
        "unknown option 'shape' in the redis URL; this store has timeout, patience; "
        "every store has compress, encrypt, prefix, read_only, retry"
    )


@pytest.mark.parametrize(
    ("misspelt", "suggestion"),
    [
        ("compres", "compress"),
        ("Encrypt", "encrypt"),
        ("readonly", "read_only"),
        ("timout", "timeout"),
    ],
)
def test_a_misspelt_option_is_rejected_with_a_suggestion(misspelt, suggestion):
    with pytest.raises(
        StateStoreError, match=rf"'{misspelt}' in the redis URL, did you mean {suggestion}\?"
    ):
        StoreURL(f"redis://host?{misspelt}=1").reject_unknown_options(("timeout",))


def test_a_repeated_option_is_rejected():
    with pytest.raises(StateStoreError, match="option 'a' appears twice"):
        StoreURL("memory:?a=1&b=2&a=1")


# ---- malformed URLs -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["", "state.db", "/var/lib", "://x", "1x://y", "hunter2", "a b://c", "é:"]
)
def test_a_url_without_a_scheme_is_rejected_and_not_repeated(url):
    with pytest.raises(StateStoreError, match="has no scheme") as caught:
        StoreURL(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", [None, 7, b"memory:", ["memory:"]])
def test_a_url_must_be_a_str(url):
    with pytest.raises(TypeError, match="URL must be a str"):
        StoreURL(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:hunter2@host:port/0",
        "redis://user:hunter2@host:99999/0",
        "redis://user:hunter2@host:-1/0",
        "redis://user:hunter2@host:1:2/0",
        "redis://user:hunter2@[::1/0",
        "redis://user:hunter2@::1]/0",
        "redis://user:hunter2@[hunter2]/0",
        "redis://user:hunter2@[::1]x/0",
        "redis://user:hunter2@::1/0",
        "redis://user:hun[ter2@host/0",
        "redis://user:[hunter2]@host/0",
        "redis://hunter2\u2100@host/0",
        "redis://user:hunter2\u2100@host/0",
        "redis://user:hunter2/x@host/0",
        "redis://user:6379/hunter2@host/0",
        "redis://user:6379?hunter2@host/0",
        "redis://user:6379?hunter2=1@host/0",
        "redis://user:hunter2?x@host/0",
        "redis://user:hunter2#x@host/0",
        "redis://user:6379#hunter2@host/0",
        "redis://:hunter2@host/0?timeout",
        "redis://:hunter2@host/0?",
        "redis://:hunter2@host/0?=1",
        "redis://:hunter2@host/0?a=1&&b=2",
        "redis://:hunter2@host/0?a=1&hunter2",
        "redis://:hunter2@ho\nst/0",
        "redis://:hunter2\x00@host/0",
        "redis://:hunter2@a:1,b:x/0",
    ],
)
def test_a_malformed_url_is_explained_and_not_repeated(url):
    with pytest.raises(StateStoreError, match="redis URL") as caught:
        StoreURL(url)
    assert "hunter2" not in format_chain(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    "url",
    [
        "postgres:u:hunter2@h/x",
        "postgresql:hunter2@h/x",
        "redis:hunter2@h",
        "redis:hunter2",
        "nats:/u:hunter2@h",
        "dapr:u:hunter2@h",
        "s3:u:hunter2@h",
        "sqlite:u:hunter2@h/x",
        "file:u:hunter2@h/x",
        "memory:u:hunter2@h",
        "elsewhere:u:hunter2@h",
    ],
)
def test_an_address_without_slashes_is_rejected_and_not_repeated(url):
    with pytest.raises(StateStoreError) as caught:
        open_state_store(url)
    assert "hunter2" not in format_chain(caught.value)


@given(st.text(max_size=40))
def test_any_text_is_parsed_or_rejected_with_a_message(text):
    try:
        url = StoreURL(f"redis://{text}")
    except StateStoreError as error:
        assert "redis URL" in str(error)  # noqa: PT017 - either is right
    else:
        assert str(url).startswith("redis:")
