"""Store URLs: masking of secrets."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import StateStoreError
from holdfast.stores.urls import StoreURL, is_secret_option, is_secret_value


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("redis://user:hunter2@host:1/0", "redis://user:***@host:1/0"),
        ("redis://:hunter2@host/0", "redis://:***@host/0"),
        ("redis://user:@host/0", "redis://user:***@host/0"),
        ("nats://hunter2@host:4222/b", "nats://***@host:4222/b"),
        ("redis://user:hunter%40%2F2@host/0", "redis://user:***@host/0"),
        ("postgresql://u:hunter2@a:1,b:2/db", "postgresql://u:***@a:1,b:2/db"),
        ("nats://u:hunter2@a:1,v:hunter2@b:2/x", "nats://u:***@b:2/x"),
        (
            "postgresql://host/db?password=hunter2&sslmode=x",
            "postgresql://host/db?password=***&sslmode=x",
        ),
        ("postgresql:///db?sslpassword=hunter2", "postgresql:///db?sslpassword=***"),
        (
            "s3://b/p?secret_access_key=hunter2&region=eu",
            "s3://b/p?secret_access_key=***&region=eu",
        ),
        ("az://c?SAS_token=hunter2", "az://c?SAS_token=***"),
        ("nats://h?credentials=hunter2", "nats://h?credentials=***"),
        ("sqlite:///x.db?encrypt=MY_KEYS", "sqlite:///x.db?encrypt=MY_KEYS"),
        ("sqlite:///x.db?encrypt=hunter2:c2VjcmV0=", "sqlite:///x.db?encrypt=***"),
        ("s3://b?endpoint=http://u:hunter2@host/x", "s3://b?endpoint=***"),
        ("s3://b?endpoint=http://host/a@b", "s3://b?endpoint=http://host/a%40b"),
        ("memory:?prefix=a/b:c", "memory:?prefix=a/b:c"),
    ],
)
def test_secrets_are_masked_wherever_a_url_is_format_chain(url, masked):
    parsed = StoreURL(url)
    assert str(parsed) == masked
    assert f"{parsed}" == masked
    assert repr(parsed) == f"<StoreURL {masked}>"
    assert "hunter2" not in repr({"url": parsed})
    for name in list(parsed.options):
        parsed.take(name)
    assert str(parsed) == masked


def test_a_key_given_instead_of_a_variable_name_is_a_secret():
    for name in (
        "HOLDFAST_KEYS",
        "my_keys",
        "_K1",
        "HOLDFAST_PRODUCTION_AGENT_STATE_ENCRYPTION_KEYS",
    ):
        assert not is_secret_value("encrypt", name)
    for key in ("", "id:c2VjcmV0", "A" * 64, "a" * 43, "ab+/=", "0" * 64):
        assert is_secret_value("encrypt", key)


@pytest.mark.parametrize(
    "option",
    [
        "password",
        "PGPASSWORD",
        "sslpassword",
        "token",
        "access_key_id",
        "sas",
        "pwd",
        "X-Signature",
    ],
)
def test_the_name_of_an_option_marks_its_value_as_secret(option):
    assert is_secret_option(option)
    assert not is_secret_option("sslmode")


def test_secrets_are_masked_in_any_text():
    url = StoreURL("redis://user:p%40ss%2Fword'@host?token=abcdef")
    for text in (
        "AUTH p@ss/word' failed",
        "AUTH p%40ss%2Fword%27 failed",
        "AUTH p%40ss%2Fword' failed",
        "AUTH p%40ss/word%27 failed",
        repr("AUTH p@ss/word' failed"),
        "token abcdef, abcdefabcdef",
    ):
        mask = url.mask(text)
        assert "***" in mask
        assert "word" not in mask
        assert "abcdef" not in mask
    assert url.mask("user at host") == "user at host"


def test_a_secret_with_a_backslash_is_masked_in_a_repr():
    url = StoreURL("redis://user:back%5Cslash@host")
    assert url.mask(repr("AUTH back\\slash")) == "'AUTH ***'"


def test_a_short_secret_is_masked_only_as_a_whole_word():
    url = StoreURL("redis://user:re@host")
    assert url.mask("retry of re: 're' refused") == "retry of ***: '***' refused"


def test_each_of_several_hosts_may_have_a_password():
    url = StoreURL("nats://u:first1@a:1,v:second@b:2/x")
    assert url.mask("first1 and second failed") == "*** and *** failed"


def test_a_url_without_secrets_masks_nothing():
    assert StoreURL("redis://host/0").mask("redis://host/0: all") == "redis://host/0: all"


@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=0x2000), min_size=6, max_size=20),
    st.sampled_from(["password", "option", "token"]),
)
def test_no_password_is_shown_whatever_its_characters(password, where):
    from urllib.parse import quote

    secret = quote(password, safe="")
    url = StoreURL(
        {
            "password": f"redis://user:{secret}@host:1/0",
            "token": f"redis://{secret}@host:1/0",
            "option": f"redis://host:1/0?password={secret}",
        }[where]
    )
    decoded = {
        "password": url.password,
        "token": url.user,
        "option": url.options.get("password"),
    }
    assert decoded[where] == password
    frame = str(StoreURL("redis://user:***@host:1/0?password=***"))
    for text in (
        str(url),
        repr(url),
        url.mask(f"{url.text()} {password} {secret} {password!r}"),
    ):
        assert password not in text or password in frame
        assert secret not in text or secret in frame


def test_a_pickled_url_stays_masked():
    url = pickle.loads(pickle.dumps(StoreURL("redis://:hunter2@host/0")))
    assert str(url) == "redis://:***@host/0"
    assert url.password == "hunter2"


@pytest.mark.parametrize(
    "url", ["sqlite:///sub%00x.db", "file:sub%00x", "redis://h/0?namespace=%00"]
)
def test_a_nul_is_rejected(url):
    with pytest.raises(StateStoreError, match="NUL"):
        StoreURL(url)


def test_a_password_with_an_unescaped_at_sign_is_rejected_and_not_format_chain():
    with pytest.raises(StateStoreError, match="two '@'") as caught:
        StoreURL("postgresql://u:hunter2@topsecret@127.0.0.1:1/db")
    assert "topsecret" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_password_equal_to_the_user_name_is_not_masked_in_messages():
    url = StoreURL("postgresql://postgres:postgres@127.0.0.1/postgres")
    assert str(url) == "postgresql://postgres:***@127.0.0.1/postgres"
    assert url.mask("no such role: postgres") == "no such role: postgres"
