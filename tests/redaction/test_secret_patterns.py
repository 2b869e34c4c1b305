"""Secrets of services, headers and commands are found, but not prose and code."""

from __future__ import annotations

import json
import time

import pytest

from holdfast.redaction.detect import Detector

DETECTOR = Detector(secrets=True, emails=False, phones=False)
HEX = "0123456789abcdef"
WORD = "x9Kq2Lm7Zt4Vb8Nc"


def find_texts(text, detector=DETECTOR):
    return {text[each.start : each.end] for each in detector.find(text)}


# Concatenated, so that secret scanners do not report this file.
TOKENS = {
    "Vault": "hvs." + "CAESIJ1a" * 4,
    "Vault batch": "hvb." + "AAAAAQJ1" * 4,
    "Vault before 1.10": "s." + "iyNUhq8Ov4hIAx6snw5mB2nL",
    "Shopify access": "shpat_" + HEX * 2,
    "Shopify shared": "shpss_" + HEX * 2,
    "Shopify custom": "shpca_" + HEX * 2,
    "Shopify private": "shppa_" + HEX * 2,
    "Azure client secret": "abc8Q~" + "defGHI_jklMNO.pqrSTU-vwxYZ01234",
    "Notion": "secret_" + "a1B2c3D4" * 6,
    "Linear": "lin_api_" + "a1B2c3D4" * 5,
    "Postman": "PMAK-" + HEX + HEX[:8] + "-" + HEX * 2 + "01",
    "Grafana": "glsa_" + "a1B2c3D4" * 4 + "_0a1b2c3d",
    "PlanetScale": "pscale_tkn_" + "a1B2c3D4" * 5,
    "Pulumi": "pul-" + HEX * 2 + HEX[:8],
    "Supabase": "sbp_" + HEX * 2 + HEX[:8],
    "Atlassian": "ATATT3" + "xFfGF0a1" * 6,
}


@pytest.mark.parametrize("name", TOKENS)
@pytest.mark.parametrize("around", ["{}", "use {} now", '{{"x": "{}"}}', "a\\n{}\\nb", "x={}&y=1"])
def test_tokens_of_services_are_found(name, around):
    assert TOKENS[name] in find_texts(around.format(TOKENS[name]))


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"SECRET_KEY={WORD}", WORD),
        (f"DJANGO_SECRET_KEY='{WORD}'", WORD),
        (f"export SECRET_KEY_BASE={WORD}{WORD}", WORD + WORD),
        ("SECRET_KEY = 'django-insecure-&x7!k'", "django-insecure-&x7!k"),
        (f'{{"secret_key": "{WORD}"}}', WORD),
        (f"secret_key: {WORD}", WORD),
        (f"APP_KEY=base64:{WORD}=", f"base64:{WORD}="),
        (f"MASTER_KEY={WORD}", WORD),
        (f"GITHUB_TOKEN_RO={WORD}", WORD),
        (f"JWT_SECRET_CURRENT={WORD}", WORD),
        (f"STRIPE_WEBHOOK_SECRET_V2: '{WORD}'", WORD),
        (f"MY_PASSWORD_FOR_TESTS={WORD}", WORD),
        (f"DATADOG_KEY={WORD}", WORD),
        (f'{{"datadog_key": "{WORD}"}}', WORD),
        (f"webhookSecretCurrent: '{WORD}'", WORD),
        (f"GH_PAT={WORD}", WORD),
        ("curl -u ada:s3cr3t https://example.com", "s3cr3t"),
        ("curl -sS --user 'ada:s3cr3t' https://example.com", "s3cr3t"),
        ("curl https://example.com -uada:s3cr3t", "s3cr3t"),
        ("curl -X POST -H 'A: b' --proxy-user ada:s3cr3t x", "s3cr3t"),
        ("mysql -u root -ps3cr3t shop", "s3cr3t"),
        ("mysqldump -h db -uroot '-x' -p's3cr3t' shop", "s3cr3t"),
        ("mariadb -ps3cr3t", "s3cr3t"),
        ("sshpass -p s3cr3t ssh ada@host", "s3cr3t"),
        ("redis-cli -h cache -a s3cr3t ping", "s3cr3t"),
        ("docker login -u ada -p s3cr3t registry.example.com", "s3cr3t"),
        ("ldapsearch -D cn=admin -w s3cr3t", "s3cr3t"),
        (f"Cookie: theme=dark; sid={WORD}", WORD),
        (f"cookie: sid={WORD}\r\nHost: x", WORD),
        (f"Set-Cookie: sid={WORD}; Path=/; HttpOnly", WORD),
        (f'{{"headers": {{"Cookie": "a=1; sid={WORD}"}}}}', WORD),
        (json.dumps(json.dumps({"Set-Cookie": f"sid={WORD}; Path=/"})), WORD),
        (f"-H 'Cookie: sid={WORD}'", WORD),
        (
            f"https://x.blob.core.windows.net/c/b?sv=2024-11-04&se=2026-01-01&sig={WORD}%2B{WORD}%3D",
            f"{WORD}%2B{WORD}%3D",
        ),
        (f"?sig={WORD}{WORD}&sp=r", WORD + WORD),
        (f"\\u0026sig={WORD}{WORD}", WORD + WORD),
        (f"Endpoint=sb://x/;SharedAccessKeyName=a;SharedAccessKey={WORD * 3}=", WORD * 3 + "="),
        (f"https://b.s3.amazonaws.com/k?X-Amz-Signature={HEX * 4}", HEX * 4),
        ("//registry.npmjs.org/:_authToken=npm_abcdef", "npm_abcdef"),
    ],
)
def test_secrets_in_assignments_commands_and_headers_are_found(text, secret):
    assert secret in find_texts(text)


def test_attributes_of_cookies_are_kept():
    text = f"Set-Cookie: sid={WORD}; Path=/account; Domain=example.com; Max-Age=3600"
    assert find_texts(text) == {WORD}


PROSE = """
The key to success is practice. Press any key: Enter or Space. The primary key is user_id.
She kept the secret for 20 years; the token gesture cost 15 euros. Cookies: chocolate, 2 cups sugar.
Set the cookie: it expires in 3600s. We tokenize the text, then count tokens: 512 of 4096.
The secretary's password policy (min 12 characters) is in section 4.2. A secret: work hard.
mysql -p asks for a password, and so does mysql -p shop. Use curl -u user: to be asked for one.
curl -u $USER:$PASS and curl -u <user>:<password> are templates; so is mysql -p$MYSQL_PASSWORD.
docker run -p 8080:80 nginx; mkdir -p /srv/data/2026; ssh -p 2222 host; cp -p a1b2c3 d4.
"""
CODE = """
SECRET_KEY = os.environ["SECRET_KEY"]
SECRET_KEY_FALLBACKS = []
TOKEN_URL = "https://login.example.com/oauth2/v2.0/token"
TOKEN_COUNT = 128000
SECRET_NAME = "prod/db/credentials-2024"
PASSWORD_RESET_TIMEOUT_DAYS = 3
primary_key = "user_2024_01_01_0001"
cache_key = f"user:{user_id}:profile:v2"
sort_key = "created_at_2024"
idempotency_key = "order-2024-000123"
partition_key="tenant1234567890"
AWS_ACCESS_KEY_ID_NAME = "key-id-2024-prod"
token_type: "urn:ietf:params:oauth:token-type:jwt"
tokenizer_version = "cl100k_base_2024"
token_expires_at = "2026-11-15T09:30:00.000000Z"
secret_arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:prod-1a2b3c"
password_hash_algorithm = "pbkdf2_sha256_600000"
hot_key = "ctrl+shift+f12abc"
key = lambda item: item[1]
sorted(items, key=operator.itemgetter(1))
kubectl get secret my-secret-2024 -o yaml
{"tokens": {"prompt": 1234, "completion": 567}, "token_ids": [101, 2023, 102]}
{"key": "value1234567890ab", "foreign_key": "order_1234567890ab"}
{"api_key_id": "key_0123456789abcdef", "max_tokens_to_sample": 100000}
"""


@pytest.mark.parametrize("line", [line for line in (PROSE + CODE).splitlines() if line])
def test_prose_and_code_have_no_secrets(line):
    assert find_texts(line) == set()


# ------------------------------------------------------------------------------ personal numbers


def numbers(**options):
    return Detector(secrets=False, emails=False, phones=False, **options)


@pytest.mark.parametrize(
    "text",
    ["4111111111111111", "4111 1111 1111 1111", "5500-0000-0000-0004", "340000000000009"],
)
def test_card_numbers_are_found_on_request(text):
    assert find_texts(f"pay with {text}, please", numbers(cards=True)) == {text}
    assert find_texts(f"pay with {text}, please", numbers()) == set()


@pytest.mark.parametrize(
    "text",
    [
        "4111111111111112",
        "1700000000123",
        "4444444444444444 0",
        "0.4111111111111111",
        "a4111111111111111",
        "41111111-1111-1111-1111-111111111111",
        "2026-11-15 09:30:00",
    ],
)
def test_other_numbers_are_not_cards(text):
    assert find_texts(text, numbers(cards=True)) == set()


@pytest.mark.parametrize(
    "text",
    ["DE89370400440532013000", "DE89 3704 0044 0532 0130 00", "GB82 WEST 1234 5698 7654 32"],
)
def test_ibans_are_found_on_request(text):
    assert find_texts(f"to {text} AND MORE", numbers(ibans=True)) == {text}
    assert find_texts(f"to {text}", numbers()) == set()
    assert find_texts(f"to {text.replace('3', '4')}", numbers(ibans=True)) == set()


def test_social_security_numbers_are_found_on_request():
    detector = numbers(ssns=True)
    assert find_texts("SSN 123-45-6789.", detector) == {"123-45-6789"}
    assert find_texts("SSN 123 45 6789", detector) == {"123 45 6789"}
    for text in ("000-12-3456", "666-12-3456", "912-12-3456", "123-00-4567", "123-45-0000"):
        assert find_texts(text, detector) == set()
    assert find_texts("123456789, 1123-45-6789, 123-45-67890, 2026-11-15", detector) == set()
    assert find_texts("123-45-6789", numbers()) == set()


# ---------------------------------------------------------------------------------- linear time

ATTACKS = [
    "secret_",
    "secret-",
    "SECRET_KEY",
    "secret=",
    "secret =",
    'secret="',
    "secret='",
    "secret: ",
    "secret\\\\",
    "password is ",
    "token.",
    "<secret>",
    "_key",
    "a_key=",
    "A",
    "aA",
    "a_",
    "eyJ",
    "eyJ.",
    "=eyJ",
    "eyJhbGciOiJI.a",
    "ghp_" + "a1B2c3D4e5" * 4,
    "ghp_" + "a1B2" * 9,
    "sk-",
    "sk-T3BlbkFJ",
    "T3BlbkFJ",
    "sk-" + "a" * 20 + "T3BlbkFJ",
    ":_authToken=//",
    "//a/",
    "://a:",
    "://a:b@",
    "bearer ",
    "bearer a",
    "authorization basic ",
    "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----" + "a" * 40,
    "PuTTY-User-Key-File-2",
    "curl ",
    "curl -u ",
    "curl -u a",
    "mysql -p ",
    "mysql ",
    "docker -p",
    "cookie: a=",
    "Set-Cookie: a=bbbb;",
    "cookie:",
    "sig=",
    "&sig=a",
    "s.a",
    "aws key ",
    "[redacted: secret]",
    "[redacted: x] secret=hunter22 ",
    "a@",
    "a@a.",
    "a.a",
    "+1 ",
    "+1 650 ",
    "%25",
    "%5C",
    "\\",
    "\\u001b[",
    "4",
    "4 ",
    "4111-",
    "DE89 ",
    "DE89",
    "123-45-",
    "xoxb-1-",
    "hvs.",
    "a.atlasv1.",
    "{",
    "`",
]


def steps(work):
    """Return the CPU time of a call: the least of a few runs."""

    def once():
        began = time.process_time()
        work()
        return time.process_time() - began

    return min(once() for _ in range(3))


@pytest.mark.parametrize("piece", ATTACKS)
def test_pattern_matching_takes_linear_time(piece):
    detector = Detector(secrets=True, emails=True, phones=True, cards=True, ibans=True, ssns=True)
    small, large = (piece * (size // len(piece) + 1) for size in (5_000, 40_000))
    least = max(steps(lambda: detector.find(small)), 0.005)
    assert steps(lambda: detector.find(large)) < 24 * least  # the square would be 64 times as much
