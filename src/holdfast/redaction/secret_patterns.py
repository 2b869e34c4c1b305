"""Find secrets by their form: keys and tokens of services, headers, commands, URLs.

The patterns are those of detect-secrets and more, for services that it does not know. Its own scan
is not used, because it reads files, asks services whether a secret is valid, and does not return
every position. Its detectors that match ordinary ids are left out.

The time is linear in the length of a text: a pattern has no unbounded part except at its end, and
matches are not searched for other matches. Three patterns of the library that are not linear (npm,
OpenAI, JWT) are replaced by code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.redaction.findings import SECRET, Finding, import_library, is_separate_word, match_end
from holdfast.redaction.secret_names import is_placeholder


@dataclass(frozen=True, slots=True)
class Pattern:
    """The form of one kind of secret."""

    kind: str
    regex: re.Pattern[str]
    group: int = 0
    """The group of the match that is the secret."""
    alone: bool = False
    """Whether it must be a separate word, because the pattern also matches parts of ids."""
    hints: tuple[str, ...] = ()
    """Every text with such a secret contains one of these."""
    check: Callable[[str], bool] = bool
    distinct: bool = True


# Module and class in detect-secrets, the kind, and other fields of `Pattern`.
DETECT_SECRETS_PLUGINS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("azure_storage_key", "AzureStorageKeyDetector", "Azure key", {"hints": ("AccountKey=",)}),
    ("discord", "DiscordBotTokenDetector", "Discord token", {"alone": True, "hints": (".",)}),
    (
        "github_token",
        "GitHubTokenDetector",
        "GitHub token",
        {"hints": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")},
    ),
    ("gitlab_token", "GitLabTokenDetector", "GitLab token", {"hints": ("gl", "GR1348941")}),
    ("mailchimp", "MailchimpDetector", "Mailchimp key", {"alone": True, "hints": ("-us",)}),
    ("pypi_token", "PypiTokenDetector", "package index token", {"hints": ("pypi-AgE",)}),
    ("sendgrid", "SendGridDetector", "SendGrid key", {"hints": ("SG.",)}),
    ("slack", "SlackDetector", "Slack token", {"hints": ("xox", "XOX", "hooks.slack.com")}),
    ("square_oauth", "SquareOAuthDetector", "Square secret", {"hints": ("sq0csp-",)}),
    ("stripe", "StripeDetector", "Stripe key", {"hints": ("k_live_",)}),
    (
        "telegram_token",
        "TelegramBotTokenDetector",
        "Telegram token",
        {"alone": True, "hints": (":",)},
    ),
    ("twilio", "TwilioKeyDetector", "Twilio key", {"alone": True, "hints": ("AC", "SK")}),
)

BEFORE = r"(?<![A-Za-z0-9])"
BASE64 = r"[A-Za-z0-9+/=\s\\]"
SERVICE_PATTERNS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("GitHub token", r"github_pat_[A-Za-z0-9_]{22,}", ("github_pat_",)),
    ("Anthropic key", BEFORE + r"sk-ant-[A-Za-z0-9_-]{20,}", ("sk-ant-",)),
    ("OpenAI key", BEFORE + r"sk-(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{20,}", ("sk-",)),
    ("API key", BEFORE + r"sk-(?:or-v1-|lf-)?(?=[A-Za-z]*\d)[A-Za-z0-9-]{32,}", ("sk-",)),
    ("Google key", r"AIza[0-9A-Za-z_-]{35}", ("AIza",)),
    ("Google token", BEFORE + r"ya29\.[0-9A-Za-z_-]{20,}", ("ya29.",)),
    ("Hugging Face token", BEFORE + r"hf_[A-Za-z0-9]{30,}", ("hf_",)),
    ("Slack token", BEFORE + r"xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{10,}", ("xox",)),
    ("Slack token", BEFORE + r"xapp-\d-[A-Za-z0-9-]{10,}", ("xapp-",)),
    ("Stripe key", BEFORE + r"[rs]k_test_[0-9a-zA-Z]{16,}", ("k_test_",)),
    ("Stripe key", BEFORE + r"whsec_[A-Za-z0-9+/=]{24,}", ("whsec_",)),
    ("npm token", BEFORE + r"npm_[A-Za-z0-9]{36}", ("npm_",)),
    ("Groq key", BEFORE + r"gsk_[A-Za-z0-9]{40,}", ("gsk_",)),
    ("xAI key", BEFORE + r"xai-[A-Za-z0-9]{40,}", ("xai-",)),
    ("Replicate token", BEFORE + r"r8_[A-Za-z0-9]{37,}", ("r8_",)),
    ("Perplexity key", BEFORE + r"pplx-[A-Za-z0-9]{40,}", ("pplx-",)),
    ("Tavily key", BEFORE + r"tvly-[A-Za-z0-9-]{20,}", ("tvly-",)),
    ("LangSmith key", BEFORE + r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}", ("lsv2_",)),
    ("Databricks token", BEFORE + r"dapi[0-9a-f]{32}", ("dapi",)),
    ("Docker token", BEFORE + r"dckr_[po]at_[A-Za-z0-9_-]{20,}", ("dckr_",)),
    ("DigitalOcean token", BEFORE + r"do[opr]_v1_[0-9a-f]{64}", ("_v1_",)),
    ("Vault token", BEFORE + r"hv[sbr]\.[A-Za-z0-9_-]{20,}", ("hvs.", "hvb.", "hvr.")),
    ("Shopify token", BEFORE + r"shp(?:at|ss|ca|pa|ua|tka)_[0-9a-fA-F]{32}", ("shp",)),
    ("Azure secret", r"(?<![A-Za-z0-9])[A-Za-z0-9_~.-]{3}\dQ~[A-Za-z0-9_~.-]{31,34}", ("Q~",)),
    ("Linear key", BEFORE + r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}", ("lin_",)),
    ("Notion token", BEFORE + r"(?:secret|ntn)_[A-Za-z0-9]{43,}", ("secret_", "ntn_")),
    ("Postman key", BEFORE + r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}", ("PMAK-",)),
    ("Grafana token", BEFORE + r"gl(?:sa|c)_[A-Za-z0-9+/=_]{32,}", ("glsa_", "glc_")),
    ("New Relic key", BEFORE + r"NRAK-[A-Z0-9]{27}", ("NRAK-",)),
    ("PlanetScale token", BEFORE + r"pscale_(?:tkn|pw|oauth)_[\w=.-]{32,}", ("pscale_",)),
    ("Pulumi token", BEFORE + r"pul-[0-9a-f]{40}", ("pul-",)),
    ("RubyGems key", BEFORE + r"rubygems_[0-9a-f]{48}", ("rubygems_",)),
    ("Fly.io token", BEFORE + r"fo1_[\w-]{43}", ("fo1_",)),
    ("Sentry token", BEFORE + r"sntrys?u?_[A-Za-z0-9+/=_-]{40,}", ("sntry",)),
    ("Supabase key", BEFORE + r"sbp_[0-9a-f]{40}", ("sbp_",)),
    ("Terraform token", BEFORE + r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9=_-]{60,}", (".atlasv1.",)),
    ("Atlassian token", BEFORE + r"ATATT3[A-Za-z0-9_=-]{40,}", ("ATATT3",)),
    ("age key", BEFORE + r"AGE-SECRET-KEY-1[0-9A-Z]{58}", ("AGE-SECRET-KEY-1",)),
)
SPACES = r"[ \t]{1,8}"
COMMAND = r"[^\n|;&]{0,300}?"
# The kind, a pattern with the secret as its group, and hints.
CAPTURE_PATTERNS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("npm token", r":_authToken=\s{0,8}[\"']?([^\s\"']{6,512})", (":_authToken=",)),
    # Signed URLs and connection strings, also with escapes blanked out.
    (
        "signature",
        (
            r"(?i)(?<![A-Za-z0-9])(?:sig|x-amz-signature|x-goog-signature|x-amz-security-token)="
            r"([A-Za-z0-9%+/=_-]{16,2048})"
        ),
        ("sig=", "ignature=", "IGNATURE=", "oken="),
    ),
    ("Azure key", r"SharedAccessKey=([A-Za-z0-9+/=]{32,128})", ("SharedAccessKey=",)),
    # Vault tokens before 1.10.
    (
        "Vault token",
        r"(?<![\w.])(s\.(?=[A-Za-z]{0,23}\d)(?=[a-z0-9]{0,23}[A-Z])[A-Za-z0-9]{24})(?![\w.])",
        ("s.",),
    ),
    (
        SECRET,
        (
            rf"(?<![\w-])curl\b{COMMAND}{SPACES}(?:-u|--user|-U|--proxy-user)[ =]{{0,4}}[\"']?"
            r"[^\s:\"']{1,128}:([^\s\"']{1,256})"
        ),
        ("curl",),
    ),
    (
        SECRET,
        (
            rf"(?<![\w-])(?:mysql|mysqldump|mysqladmin|mysqlimport|mysqlsh|mariadb|mariadb-dump)\b{COMMAND}"
            rf"{SPACES}-p[\"']?([^\s\"'-][^\s\"']{{2,256}})"
        ),
        ("mysql", "mariadb"),
    ),
    (
        SECRET,
        (
            rf"(?<![\w-])(?:sshpass{COMMAND}{SPACES}-p|redis-cli{COMMAND}{SPACES}-a|"
            rf"(?:(?:docker|podman|az|oc|helm registry) login|mongo(?:sh|dump|restore)?){COMMAND}"
            rf"{SPACES}-p|"
            rf"ldap(?:search|modify|add|delete|passwd){COMMAND}{SPACES}-w){SPACES}[\"']?"
            r"([^\s\"'-][^\s\"']{3,256})"
        ),
        ("sshpass", "redis-cli", " -p ", " -w "),
    ),
)
LONGEST_COOKIES = 4096
COOKIES = re.compile(
    r"(?i)(?<![\w-])(?P<set>set-)?cookie\\{0,3}[\"']?[ \t]{0,4}[:,][ \t]{0,4}\\{0,3}[\"']?"
    rf"(?=[\w!#$%&*+.^|~-]{{1,128}}=)(?P<pairs>[^\r\n\"'\\]{{1,{LONGEST_COOKIES}}})"
)
COOKIE = re.compile(r"(?:^|;)[ \t]{0,4}[\w!#$%&*+.^|~-]{1,128}=([^;\s,]{4,4096})")
OPENAI = "T3BlbkFJ"
OPENAI_HALF = re.compile(r"[A-Za-z0-9]{20}")
LONGEST_PREFIX = 200
WEB_TOKEN_PART = re.compile(r"[A-Za-z0-9_=-]+")
MAX_STARTS = 4
LONGEST_KEY = 50_000
KEY_BEGIN = re.compile(
    r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
    rf"(?=[^-]{{0,400}}?{BASE64}{{32}})|PuTTY-User-Key-File-\d"
)
KEY_END = re.compile(r"-----END[^-\n]{1,60}-----")
KEY_REST = re.compile(rf"{BASE64}*")
PUTTY_END = re.compile(r"Private-MAC: {0,8}[0-9a-f]{1,128}")
BEARER = re.compile(r"\bbearer\s+((?=[A-Za-z._~+/-]*\d)[A-Za-z0-9._~+/-]{16,}=*)", re.IGNORECASE)
BASIC = re.compile(r"authorization\W{1,8}basic\s+([A-Za-z0-9+/]{8,}=*)", re.IGNORECASE)
IN_URL = re.compile(r"://[^\s:/?#@\[\]\"'<>]*:([^\s/@\"'<>]+)@")
WORD = re.compile(r"[A-Za-z0-9_-]*")
JWT_REST = re.compile(r"[A-Za-z0-9_=+/-]*(?:\.[A-Za-z0-9_=+/-]+)*")


class TokenPatterns:
    """Finds secrets by their form."""

    def __init__(self) -> None:
        aws = import_library("detect_secrets.plugins.aws").AWSKeyDetector.denylist
        jwt = import_library("detect_secrets.plugins.jwt").JwtTokenDetector
        basic = import_library("detect_secrets.plugins.basic_auth").BasicAuthDetector.denylist
        self._is_jwt = jwt.is_formally_valid
        patterns = [
            Pattern("AWS key", aws[0], hints=("A3T", "ABIA", "ACCA", "AKIA", "ASIA")),
            Pattern("AWS key", aws[1], group=1, hints=("aws", "AWS", "Aws")),
            Pattern("token", BEARER, group=1, hints=("earer", "EARER")),
            Pattern(SECRET, BASIC, group=1, hints=("asic", "ASIC")),
        ]
        for regex in (*basic, IN_URL):
            patterns.append(
                Pattern(
                    SECRET, regex, group=1, hints=("://",), check=is_not_placeholder, distinct=False
                )
            )
        for module, name, kind, options in DETECT_SECRETS_PLUGINS:
            plugin = getattr(import_library(f"detect_secrets.plugins.{module}"), name)
            patterns += [Pattern(kind, regex, **options) for regex in plugin.denylist]
        patterns += [
            Pattern(kind, re.compile(text), hints=hints) for kind, text, hints in SERVICE_PATTERNS
        ]
        patterns += [
            Pattern(
                kind,
                re.compile(text),
                1,
                hints=hints,
                check=is_not_placeholder,
                distinct=kind != SECRET,
            )
            for kind, text, hints in CAPTURE_PATTERNS
        ]
        self._patterns = patterns
        # Checking hints first is fast, since most texts contain none.
        self._hints = [
            (hint, at) for at, pattern in enumerate(patterns) for hint in pattern.hints or ("",)
        ]

    def find(self, text: str) -> Iterator[Finding]:
        """Find the tokens in a text."""
        for likely in {at for hint, at in self._hints if hint in text}:
            yield from self._matches(self._patterns[likely], text)
        if "PRIVATE KEY" in text or "PuTTY" in text:
            yield from find_private_keys(text)
        if "eyJ" in text:
            yield from self._web_tokens(text)
        if OPENAI in text:
            yield from find_openai_keys(text)
        if "ookie" in text or "OOKIE" in text:
            yield from find_cookies(text)

    def _matches(self, pattern: Pattern, text: str) -> Iterator[Finding]:
        done = 0
        for match in pattern.regex.finditer(text):
            start, end = match.span(pattern.group)
            if start < done or (pattern.alone and not is_separate_word(text, start, end)):
                continue
            if pattern.group == 0:
                # The library matches only a prefix, but the whole token must be removed.
                end = match_end(WORD, text, end)
            if start < end and pattern.check(text[start:end]):
                done = end
                yield Finding(start, end, pattern.kind, pattern.distinct)

    def _web_tokens(self, text: str) -> Iterator[Finding]:
        """Find JWTs, trying the first few possible starts in each word before a dot."""
        done, at = 0, text.find("eyJ")
        while at >= 0:
            word = match_end(WEB_TOKEN_PART, text, at)
            if text[word : word + 1] == "." and WEB_TOKEN_PART.match(text, word + 1):
                payload = match_end(WEB_TOKEN_PART, text, word + 1)
                for _ in range(MAX_STARTS):
                    if at >= done and self._is_jwt(text[at:payload]):
                        done = match_end(JWT_REST, text, payload)
                        yield Finding(at, done, "JWT")
                        break
                    at = text.find("eyJ", at + 1, word)
                    if at < 0:
                        break
            at = text.find("eyJ", max(word, done))


def find_private_keys(text: str) -> Iterator[Finding]:
    """Find private keys, from the first line to the last; a truncated one to its end."""
    at = 0
    while begin := KEY_BEGIN.search(text, at):
        is_putty = begin[0].startswith("PuTTY")
        last = "Private-MAC:" if is_putty else "-----END"
        at = begin.end()
        end = text.find(last, at, at + LONGEST_KEY)
        closing = (PUTTY_END if is_putty else KEY_END).match(text, end) if end >= 0 else None
        if closing is not None:
            at = closing.end()
        elif not is_putty:
            at = match_end(KEY_REST, text, at)
        if closing is not None or not is_putty:
            yield Finding(begin.start(), at, "private key")


def find_openai_keys(text: str) -> Iterator[Finding]:
    """Find OpenAI's older keys, which have a fixed word in the middle."""
    done, middle = 0, text.find(OPENAI)
    while middle >= 0:
        after = middle + len(OPENAI)
        start = text.rfind("sk-", max(done, middle - LONGEST_PREFIX), middle)
        halves = OPENAI_HALF.match(text, middle - 20) and OPENAI_HALF.match(text, after)
        if 0 <= start <= middle - 23 and halves and WORD.fullmatch(text, start, middle):
            done = match_end(WORD, text, after)
            yield Finding(start, done, "OpenAI key")
        middle = text.find(OPENAI, max(after, done))


def find_cookies(text: str) -> Iterator[Finding]:
    """Find the values of cookies in headers, without the attributes of Set-Cookie."""
    for header in COOKIES.finditer(text):
        for number, pair in enumerate(COOKIE.finditer(header["pairs"])):
            if number == 0 or header["set"] is None:
                offset = header.start("pairs")
                yield Finding(
                    offset + pair.start(1), offset + pair.end(1), "cookie", distinct=False
                )


def is_not_placeholder(value: str) -> bool:
    """Return whether a value is not a placeholder such as ``<password>`` or ``$PASSWORD``."""
    return not (is_placeholder(value) or is_placeholder(value.rstrip(".,:;!?)")))
