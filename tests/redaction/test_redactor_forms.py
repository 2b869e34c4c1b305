"""Secrets are found in escapes, URLs, nested JSON, pairs and ids."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from urllib.parse import quote, quote_plus
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.redaction.clean import Cleaner
from holdfast.redaction.detect import Detector, blank_escapes
from holdfast.redaction.known_texts import KnownTexts, list_encoded_forms
from holdfast.redaction.redactor import Redactor
from support.redaction_samples import (
    ADA,
    AWS,
    GITHUB,
    PHONE,
    list_removed,
    read_all_text,
    redact_work,
)
from support.sample_values import is_identical

ALL = {"secrets": True, "emails": True, "phones": True, "entropy": False, "region": None}
DETECTOR = Detector(**ALL)
GONE = "[redacted: secret]"
ANTHROPIC = "sk-ant-" + "api03-" + "a1B2" * 20
SECRETS = {
    "Anthropic key": ANTHROPIC,
    "Discord token": "M" + "a1" * 12 + "." + "b2" * 3 + "." + "c3" * 13 + "d",
    "Mailchimp key": "0123456789abcdef" * 2 + "-us12",
    "Telegram token": "123456789:" + "AB12c" * 7,
    "Twilio key": "SK" + "a1" * 16,
    "phone": PHONE,
}
ESCAPES = [
    *(r"\n", r"\t", r"\r\n", r"\b", r"\f", r"\\n", r"\\\\n", r"\xe9", r"\u00e9", r"\u00E9"),
    *(r"\U0001f600", "%3D", "%3d", "%0A", "%253D", "%25250A", "%5Cn"),
    *("\x1b[31m", "\x1b[m", "\x1b[1;38;2;255;128;0m", "\x1b[01;31m\x1b[K"),
    *(r"\u001b[31m", r"\x1b[31m", r"\033[31m", r"\e[31m", "%1B[31m", "%1B%5B31m"),
]


def find_texts(text, detector=DETECTOR):
    return {(each.kind, text[each.start : each.end]) for each in detector.find(text)}


# ----------------------------------------------------------------------------- after an escape


@pytest.mark.parametrize("escape", ESCAPES)
def test_a_secret_is_found_right_after_an_escape(escape):
    for kind, secret in SECRETS.items():
        assert (kind, secret) in find_texts(f'{{"out": "a{escape}{secret}\\n"}}')
    assert any(what.endswith(ADA) for _, what in find_texts(f"a{escape}{ADA}"))
    assert ("token", "abcdefgh12345678") in find_texts(f"x{escape}Bearer abcdefgh12345678")
    for line, secret in (("token: abc123def456", "abc123def456"), ("DB_PASSWORD=fish", "fish")):
        assert ("secret", secret) in find_texts(f'"a{escape}{line}\\n"')


def test_a_national_phone_number_is_found_right_after_an_escape():
    german = Detector(**{**ALL, "region": "DE"})
    for escape in ESCAPES:
        assert ("phone", "030 901820") in find_texts(f'"a{escape}030 901820\\n"', german)


def test_a_line_inside_json_is_treated_as_a_line():
    assert ("secret", "swordfish") in find_texts(json.dumps("User: ada\nPassword: swordfish\n"))


def test_an_email_address_does_not_include_an_escape_before_it():
    for text in (f"to:\n{ADA}", f"é{ADA}", f"\x1b{ADA}"):
        assert find_texts(json.dumps(text)) == {("email", ADA)}
    assert find_texts(r"CORP\u2@example.com") == {("email", "u2@example.com")}


@pytest.mark.parametrize(
    "text",
    [
        r"C:\new\task-" + "a1" * 20 + r" and C:\bin\desk-" + "a1" * 20,
        r"\bask-" + "a1" * 20 + r" \textask_test_" + "a1" * 20,
        "x%zzsk-" + "a1" * 20 + " 5%risk-" + "a1" * 20 + " [31msk-" + "a1" * 20,
        "x[31m" + "0123456789abcdef" * 2 + "-us12",
        r"\begin{token} \nabla \textbf{secret} \frac{1}{2} \u00e9t\u00e9",
        r"print('\ttoken: %s\n\tpassword: %s' % (token, password)); re.compile(r'\bpassword\b')",
        r"'\npassword: str\n' '\ntoken = next(tokens)\n' '\nThe password is wrong.\n'",
        "https://a.b/?next=%2Fpassword%2Freset%3Ftoken%3D&q=the%20secret%20garden",
        "\x1b[1mpassword\x1b[0m: \x1b[32mrequired\x1b[0m",
        json.dumps("import pytest\n@pytest.mark.slow\ndef test():\n\t@cached.property\n"),
    ],
)
def test_escapes_do_not_cause_false_findings(text):
    assert find_texts(text) == set()


def test_escapes_are_replaced_by_blanks_of_the_same_length():
    assert blank_escapes(r"a\nb\u00e9c%0Ad%20\x1b[1mf" + "\x1b[0mg") == (
        "a\n\nb      c\n\n\nd          f    g"
    )
    assert blank_escapes("plain [0m, 100 %, \\") == "plain [0m, 100 %, \\"


WRAPS = {
    "json": json.dumps,
    "json as it is": lambda text: json.dumps(text, ensure_ascii=False),
    "repr": repr,
    "bytes": lambda text: repr(text.encode()),
    "url": quote,
    "colour": lambda text: f"\x1b[32m{text}\x1b[0m",
}


@given(
    st.lists(st.sampled_from(sorted(WRAPS)), max_size=3),
    st.sampled_from(["\n", "\t", "é", "😀", "=", "\x1b[1m", "\n\n"]),
    st.sampled_from([ANTHROPIC, AWS, GITHUB]),
)
def test_a_secret_is_found_in_any_encoding_of_its_line(wraps, before, secret):
    text = f"a{before}{secret}\nb"
    for wrap in wraps:
        text = WRAPS[wrap](text)
    assert secret in {what for _, what in find_texts(text)}


# -------------------------------------------------------------------------------- known texts

NAMES = ["Ada Lovelace", "Renée Dupont", "Ab9 xQ/z", 'pä"ss w/ö!', "x\\y z", "a&b=c d", "ä/ö Ü/ß"]


def to_json(text):
    return json.dumps({"who": text})


def to_php_json(text):
    return json.dumps({"who": text}).replace("/", "\\/")


def to_upper_json(text):
    return re.sub(r"(?<=\\u)\w{4}", lambda digits: digits[0].upper(), to_json(text))


def to_lower_url(text):
    return re.sub(r"%..", lambda escape: escape[0].lower(), f"https://x/?a={quote_plus(text)}&b=1")


def to_javascript_url(text):
    return f"https://x/?a={quote(text, safe=chr(33))}&b=1"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "write",
    [
        to_json,
        to_php_json,
        to_upper_json,
        lambda text: to_json(to_json(text)),
        lambda text: to_json(to_json(to_json(text))),
        lambda text: to_json(json.dumps([text], ensure_ascii=False)),
        lambda text: to_json(to_php_json(text)),
        lambda text: to_php_json(to_php_json(text)),
        lambda text: f"https://x/{quote(text)}?",
        lambda text: f"https://x/?a={quote(text, safe='')}&b=1",
        lambda text: f"https://x/?a={quote_plus(text)}&b=1",
        to_lower_url,
        to_javascript_url,
        lambda text: json.dumps(f"said:\n{text}"),
        lambda text: f"%20{text}\x1b[0m, \x1b[1m{text}",
    ],
)
def test_a_known_text_is_found_in_any_encoding(name, write):
    known = KnownTexts()
    known.add(name, "path", distinct=False)
    text = write(name)
    places = list(known.find(text))
    left = text
    for place in reversed(places):
        left = left[: place.start] + left[place.end :]
    assert places
    assert not any(part in left for part in ("Lovelace", "Dupont", "xQ", "ss", "z", "=c", "Ü"))


@given(st.text('a"\\/é\n ü%+!', max_size=250) | st.text(max_size=250))
def test_the_encoded_forms_of_a_text_are_few_and_include_it(text):
    forms = list_encoded_forms(text)
    assert text in forms
    assert len(forms) <= 60
    assert json.dumps(json.dumps(json.dumps(text)))[7:-7] in {*forms, ""}


def test_an_alphanumeric_text_has_one_form():
    assert list_encoded_forms("swordfish99") == {"swordfish99"}


def test_text_at_a_path_is_removed_from_urls_and_nested_json():
    def work(session):
        session.set("customer", {"name": "Ada Lovelace", "friend": "Renée Dupont"})
        session.record("http", {"url": f"https://crm/?name={quote_plus('Ada Lovelace')}"})
        session.record("tool.called", {"arguments": to_json(to_json("Renée Dupont"))})

    document = redact_work(work, Redactor(paths=["values.customer"]))
    whole = read_all_text(document)
    assert "Lovelace" not in whole
    assert "Dupont" not in whole


# ------------------------------------------------------------------------------ names of values

KEY = "q8Zr2LmVx7Tb4Kp9Wd3N"
ID = UUID("12345678-1234-4234-9234-123456789abc")


def clean_value(value):
    cleaner = Cleaner(DETECTOR)
    cleaner.clean_value(value)
    cleaner.collecting = False
    return cleaner.clean_value(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"api_key": ID}, {"api_key": GONE}),
        ({"api_keys": [ID]}, {"api_keys": [GONE]}),
        ({"api_keys": {ID}}, {"api_keys": {GONE}}),
        ({"password": Decimal("98765.4321")}, {"password": GONE}),
        ({"password": 98765.4321}, {"password": GONE}),
        ({"password": -98765}, {"password": GONE}),
        ({"password": {"value": KEY}}, {"password": {"value": GONE}}),
        ({"secrets": {"db": {"value": "k1"}}}, {"secrets": {"db": {"value": GONE}}}),
        ({b"password": b"hunter2-Xq9"}, {b"password": GONE.encode()}),
        ({b"password": {b"value": KEY}}, {b"password": {b"value": GONE}}),
        ([("x-api-key", KEY)], [("x-api-key", GONE)]),
        ([[b"X-Api-Key", KEY.encode()]], [[b"X-Api-Key", GONE.encode()]]),
        (("Authorization", f"Token {KEY}"), ("Authorization", GONE)),
        (["login", "--password", KEY, "-v"], ["login", "--password", GONE, "-v"]),
        (["--db-password", "swordfish"], ["--db-password", GONE]),
        (["-password", "mysecret99"], ["-password", GONE]),
    ],
)
def test_a_value_with_a_secret_name_is_removed_from_any_container(value, expected):
    assert clean_value(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        ["password", "username"],
        ["password", KEY],
        ["x-api-key", "content-type"],
        ["x-api-key", "x-b3-traceid"],
        ["api-key", "auth-token-2"],
        ["x-api-key", KEY, "another"],
        ["content-type", "text/html5"],
        ["--password", "--user", "-v"],
        ["--password", "PASSWORD", "The password of the user"],
        ["--password", "what you log in with"],
        ["--password", "<yours>"],
        ["--max-tokens", "512000"],
        ["--no-password", "db1"],
        ["--password-file", "/run/secrets/db1"],
        ["--password", None, 5],
        {"password": {"type": "string", "value": "required"}},
        {"password": {"type": "string", "title": "Password2"}},
        {"token": {"value": "the"}, "size": {"value": "Large-2"}},
        {"password": 0.75, "secrets": 12345.5, "api_key": Decimal("1.5")},
        {"password": [float("inf"), Decimal("sNaN"), Decimal("Infinity"), Decimal("1E+999999")]},
        {"id": ID, "next_token": ID, ID: [ID]},
        {b"\xff": "x", b"name": b"y"},
    ],
)
def test_harmless_values_in_containers_are_kept(value):
    assert is_identical(clean_value(value), value)


def test_a_secret_id_or_number_is_removed_everywhere():
    def work(session):
        session.set("login", {"api_key": ID, "password": 98765.4321})
        session.set("ids", [ID, str(ID), {ID, str(ID)}, 98765.4321, "98765.4321", 98765.0])
        session.add_message("user", f"it is {ID}")

    document = redact_work(work)
    assert str(ID) not in read_all_text(document)
    ids = document.state.values["ids"]
    assert ids[:2] == [GONE, GONE]
    assert ids[2] == {GONE, "[redacted: secret 2]"}
    assert ids[3:] == [GONE, GONE, 98765.0]
    assert ("secret", "values.login.api_key") in list_removed(document)
