"""Secrets and personal data are found in texts, and harmless texts are not."""

from __future__ import annotations

import base64
import hashlib
import http.client as http
import inspect
import json
import time
import tokenize
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast.redaction.detect import Detector
from holdfast.redaction.known_texts import KnownTexts
from holdfast.values import to_json
from support.sample_values import SAMPLES

ALL = {"secrets": True, "emails": True, "phones": True, "entropy": False, "region": None}
DETECTOR = Detector(**ALL)

# Concatenated, so that secret scanners do not report this file.
TOKENS = {
    "AWS key": "AKIA" + "IOSFODNN7EXAMPLE",
    "Azure key": "AccountKey=" + "a1" * 43 + "==",
    "Discord token": "M" + "a1" * 12 + "." + "b2" * 3 + "." + "c3" * 13 + "d",
    "GitHub token": "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5",
    "GitLab token": "glpat-" + "a1B2" * 5,
    "Mailchimp key": "0123456789abcdef" * 2 + "-us12",
    "OpenAI key": "sk-" + "a1B2" * 5 + "T3BlbkFJ" + "c3D4" * 5,
    "Anthropic key": "sk-ant-" + "api03-" + "a1B2" * 20,
    "API key": "sk-or-v1-" + "0123abcd" * 8,
    "Google key": "AIza" + "a1B2c" * 7,
    "SendGrid key": "SG." + "a1" * 11 + "." + "b2" * 21 + "c",
    "Slack token": "xoxb-" + "123456789012-123456789012-" + "abcdefABCDEF1234",
    "Square secret": "sq0csp-" + "a1" * 21 + "b",
    "Stripe key": "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc" + "andmore",
    "Telegram token": "123456789:" + "AB12c" * 7,
    "Twilio key": "SK" + "a1" * 16,
    "Hugging Face token": "hf_" + "a1B2c3" * 6,
    "LangSmith key": "lsv2_pt_" + "0123abcd" * 4 + "_0123456789",
    "package index token": "pypi-AgEIcHlwaS5vcmc" + "a1" * 40,
}
JWT = ".".join(
    base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
    for part in ({"alg": "HS256", "typ": "JWT"}, {"sub": "1234567890", "name": "Ada"})
) + ("." + "SflKxwRJSMeKKF2QT4fwpMeJf36POk6y")
PEM = "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----".format(
    "\n".join(["MIIEowIBAAKCAQEA" * 4] * 5)
)


def find_texts(text, detector=DETECTOR):
    """Return the texts found, without those inside longer ones."""
    spans = [(each.start, each.end, each.kind) for each in detector.find(text)]
    return {
        (kind, text[start:end])
        for start, end, kind in spans
        if not any(a <= start and end <= b and (a, b) != (start, end) for a, b, _ in spans)
    }


@pytest.mark.parametrize("kind", TOKENS)
@pytest.mark.parametrize(
    "around", ["{}", "use {} now", "'{}',", '{{"x": "{}"}}', "a\n{}\nb", "x={}"]
)
def test_a_token_is_found_whole_in_any_context(kind, around):
    assert (kind, TOKENS[kind]) in find_texts(around.format(TOKENS[kind]))


def test_a_web_token_is_found_with_its_signature():
    assert find_texts(f"token of the session {JWT}; x=1") == {("JWT", JWT)}
    assert JWT in {what for _, what in find_texts(f"Cookie: session={JWT}; x=1")}
    assert find_texts(f"It was {JWT}.") == {("JWT", JWT)}
    assert find_texts("eyJub3QiOiBh.notone.x") == set()


@pytest.mark.parametrize(
    "pem",
    [
        PEM,
        PEM.replace("RSA ", ""),
        PEM.replace("RSA", "OPENSSH"),
        PEM.replace("RSA", "ENCRYPTED"),
        PEM.replace("\n", "\\n"),
        "PuTTY-User-Key-File-2: ssh-rsa\nPrivate-Lines: 1\nAAAA\nPrivate-MAC: 0f0f0f",
    ],
)
def test_a_private_key_is_found_from_first_to_last_line(pem):
    assert find_texts(f"my key:\n{pem}\nthat was it") == {("private key", pem)}


def test_a_truncated_private_key_is_found_to_its_end():
    cut = PEM[: len(PEM) // 2]
    assert find_texts(f"my key: {cut}…") == {("private key", cut)}


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ('password = "hunter2"', "hunter2"),
        ("password = 'hunter2'", "hunter2"),
        ("password='hunter2', user='x'", "hunter2"),
        ('{"password": "test", "n": 1}', "test"),
        ('{\\"password\\": \\"hunter2\\"}', "hunter2"),
        ('{"password": 12345678}', "12345678"),
        ('os.environ["API_KEY"] = "abc"', "abc"),
        ('api_key: "k-1"', "k-1"),
        ('apiKey => "k-1"', "k-1"),
        ("password: hunter2", "hunter2"),
        ("My password is hunter2.", "hunter2"),
        ('The password is "swordfish", I think', "swordfish"),
        ("DB_PASSWORD=swordfish", "swordfish"),
        ("export OPENAI_API_KEY=abcdef", "abcdef"),
        ("host=db user=x password=swordfish dbname=y", "swordfish"),
        ("Server=db;Database=x;Password=sword;", "sword"),
        ("Username: ada\nPassword: swordfish\n", "swordfish"),
        ("- password: swordfish", "swordfish"),
        ("mysql --password hunter2 --user x", "hunter2"),
        ("CREATE USER a PASSWORD 'hunter2'", "hunter2"),
        ("<password>swordfish</password>", "swordfish"),
        ("https://a.b/c?api_key=abc123def456&x=1", "abc123def456"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRf", "wJalrXUtnFEMI/K7MDENG/bPxRf"),
        ("access_token: abc123def456", "abc123def456"),
        ("Authorization: Bearer abcdefgh12345678", "abcdefgh12345678"),
        ("authorization: basic YWRhOnN3b3JkZmlzaA==", "YWRhOnN3b3JkZmlzaA=="),
        ("postgresql://app:s3cr3t@db/x", "s3cr3t"),
        ("redis://:s3cr!t$@db/x", "s3cr!t$"),
        ("//registry.example/:_authToken=npm_abc", "npm_abc"),
        ("İ password = 'hunter2'", "hunter2"),
    ],
)
def test_a_secret_is_found_by_the_name_before_it(text, secret):
    assert secret in {what for _, what in find_texts(text)}


@pytest.mark.parametrize(
    "text",
    [
        "api_key = os.environ['OPENAI_API_KEY']",
        'api_key = os.getenv("API_KEY", None)',
        "password = getpass('Password: ')",
        "self.password = password",
        "connect(user=user, password=password, token=cfg.token)",
        "connect(password=password1)",
        "def login(user: str, password: str = '') -> Token: ...",
        "class Settings:\n    api_key: SecretStr\n    password: str\n    token: AccessToken\n",
        "if password == other or not secret: raise ValueError('password is required')",
        "token = next(tokens)\nfor token in tokens: print(token.text)",
        "secrets.token_hex(16); password = hash_password(password)",
        'parser.add_argument("--password", help="The password of the user")',
        '<input type="password" name="password" placeholder="Your password">',
        '{"password": "required", "secret": "${SECRET}", "api_key": "<your key>"}',
        '{"password": "********", "token": "the", "tokens": ["a", "b"]}',
        '{"max_tokens": 512000, "total_tokens": 123456, "token_count": 12345678}',
        '{"next_token": "eyJhIjoxfQ==", "page_token": "abc123def456"}',
        "secret_name = 'prod/db'; secret_id: 'abc123'",
        "The secret: work hard. Her token of love was a ring; the password is wrong.",
        "Keep your API key safe, and never share a password: it is yours alone.",
        "password: 8-16 characters",
        "The secretary said: nothing.",
        "cd $PWD; PWD=/home/ada/src",
        "postgresql://<user>:<password>@host/db and https://host:8080/path@x",
        "look for a line that has -----BEGIN RSA PRIVATE KEY----- in it",
        "Basic understanding and bearer instruments of 1234567890123456",
        "token: 0x52908400098527886E0F7030069857D2E4169EE7",
    ],
)
def test_telling_names_without_a_secret_are_not_findings(text):
    assert find_texts(text) == set()


@pytest.mark.parametrize(
    "text",
    [
        str(uuid.UUID(int=2**127 + 12345)),
        f"1699999999:{uuid.UUID(int=7)}",
        hashlib.sha256(b"x").hexdigest(),
        f"sha256:{hashlib.sha256(b'x').hexdigest()}",
        hashlib.md5(b"x").hexdigest(),
        base64.b64encode(bytes(range(256)) * 40).decode(),
        "2026-11-15T09:30:00.000000Z and 2026-11-15 09:30:00+01:00, 15.11.2026, 11/15/2026 09:30",
        "1700000000, 1700000000.123, 1700000000123 and 4111111111111111",
        "+1234, 1e+1234567, x+1234567890123456789, -0.123456789, Decimal('+35236450.6')",
        "a@b.mean() @ c, W@x.T, icon@2x.png, pkg@1.2.3, @types/node@18.x, user@localhost",
        "git@github.com:org/repo.git, actions/checkout@v4, image@sha256:abcd, @property",
        "AC/DC, SKU12345, ASIA, AKIA, sk-learn, task-" + "a" * 40,
        "192.168.0.1, 8.8.8.8:53, ::1, 00:1B:44:11:3A:B7",
        "ses_01a1de88f12575d1889b09d0e4138b67 call_abc123DEF456ghi789 toolu_01A2b3C4d5E6f7G8h9",
        "chatcmpl-9xYzAbCdEfGhIjKlMnOpQrStUvWx req_0123456789abcdef0123456789abcdef",
        json.dumps([to_json(value) for value in SAMPLES.values()]),
    ],
)
def test_ids_hashes_times_and_numbers_are_not_secrets(text):
    assert find_texts(text) == set()


def test_source_code_is_not_a_secret():
    package = Path(inspect.getfile(holdfast)).parent
    files = [path for room in ("state", "values", "log") for path in (package / room).glob("*.py")]
    texts = [path.read_text() for path in files]
    texts += [inspect.getsource(module) for module in (json, uuid, hashlib, base64, tokenize, http)]
    for text in texts:
        # The email addresses of authors are findings.
        assert {what for kind, what in find_texts(text) if kind != "email"} == set()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("ada@example.com", "ada@example.com"),
        ("<Ada.Lovelace+x@mail.example.co.uk>.", "Ada.Lovelace+x@mail.example.co.uk"),
        ("mailto:ada@example.com?x", "ada@example.com"),
        ("'ada@example.com'", "ada@example.com"),
        ("/users/ada@example.com/profile", "ada@example.com"),
        ("jörg@müller.de", "jörg@müller.de"),
        ("x@xn--mller-kva.xn--p1ai!", "x@xn--mller-kva.xn--p1ai"),
        ("a" * 70 + "@example.com", "a" * 70 + "@example.com"),
        ("?email=ada%40example.com&x", "ada%40example.com"),
        ("[ada@example.com](mailto:ada@example.com)", "ada@example.com"),
    ],
)
def test_email_addresses_are_found(text, address):
    assert find_texts(text) == {("email", address)}


def test_international_phone_numbers_are_found():
    assert find_texts("call +49 30 901820, or +1 (650) 253-0000!") == {
        ("phone", "+49 30 901820"),
        ("phone", "+1 (650) 253-0000"),
    }
    assert find_texts("+442071838750") == {("phone", "+442071838750")}
    assert find_texts("call 030 901820 or (650) 253-0000") == set()


def test_national_phone_numbers_are_found_with_a_region():
    german = Detector(**{**ALL, "region": "DE"})
    assert find_texts("call 030 901820", german) == {("phone", "030 901820")}
    american = Detector(**{**ALL, "region": "US"})
    assert find_texts("call (650) 253-0000", american) == {("phone", "(650) 253-0000")}
    for text in ("1700000000", str(uuid.UUID(int=2**100)), "2026-11-15T09:30:00Z", "6502530000x"):
        assert find_texts(text, american) == set()
    with pytest.raises(ValueError, match="invalid region 'Germany': .* DE or US"):
        Detector(**{**ALL, "region": "Germany"})


def test_random_words_are_found_only_with_entropy():
    word = "Zx8kQ2vN5pL9wR3tY7uJ1mB4"
    assert find_texts(word) == set()
    eager = Detector(**{**ALL, "entropy": True})
    assert find_texts(f"the value {word} of it", eager) == {("secret", word)}
    assert find_texts(hashlib.sha256(b"x").hexdigest(), eager)
    assert find_texts("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", eager) == set()


def test_detection_takes_linear_time():
    lines = [
        "password: " * 2000,
        'password = "' * 2000,
        "a" * 20_000 + "@",
        "a@" * 10_000,
        "a.b-" * 5000,
        "+1 2 3 " * 3000,
        "-----BEGIN RSA PRIVATE KEY-----" * 600,
        "eyJ" * 7000,
        "://a:" * 4000,
        "`" * 20_000,
        "\\" * 20_000,
        "%25" * 7000,
        "\x1b[" + "1;" * 10_000,
        "\x1b[1" * 5000,
        r"\u001b[" * 3000,
        r"\nsk-ant-" * 2000,
        r"\npassword: " * 2000,
    ]
    for line in lines:
        begin = time.perf_counter()
        found_now = DETECTOR.find(line)
        assert isinstance(found_now, list)
        assert time.perf_counter() - begin < 5, line[:30]


# -------------------------------------------------------------------------------- known texts


@given(
    st.lists(st.text('ab1.\\"é', min_size=4, max_size=12), max_size=8),
    st.text('ab1.\\"é ', max_size=60),
)
def test_a_known_text_is_found_in_any_context(secrets, text):
    known = KnownTexts()
    for secret in secrets:
        known.add(secret, "secret", distinct=True)
    left, at = "", 0
    for place in known.find(text):
        assert place.start >= at
        left += text[at : place.start] + "\0"
        at = place.end
    left += text[at:]
    assert not any(secret.strip() in left for secret in secrets if len(secret.strip()) >= 4)


def test_a_known_word_matches_only_whole_words():
    known = KnownTexts()
    known.add("Hunter-2", "secret", distinct=False)
    known.add("swordfish", "secret", distinct=False)
    known.add("Ada Lovelace", "path", distinct=False)
    text = "Hunter-2, Hunter-22, swordfish_1 swordfish! Ada Lovelace's"
    assert [text[each.start : each.end] for each in known.find(text)] == [
        "Hunter-2",
        "swordfish",
        "Ada Lovelace",
    ]


def test_common_words_are_not_known_texts():
    known = KnownTexts()
    for word in ("user", "assistant", "completed", "required", "test", "1234", "yes", "postgres"):
        known.add(word, "secret", distinct=False)
    known.add("swordfish", "path", distinct=False)
    assert list(known.find("user assistant completed required test 1234 yes swordfish")) == []


def test_a_known_text_is_found_in_json_and_urls():
    known = KnownTexts()
    known.add('pa"ss w/ö', "secret", distinct=False)
    for text in (json.dumps('pa"ss w/ö'), '"pa\\"ss w/ö"', "?x=pa%22ss%20w%2F%C3%B6&"):
        assert len(list(known.find(text))) == 1
