r"""Where secrets, email addresses and phone numbers stand in a text.

Secrets are found by the patterns of detect-secrets and some more, for keys that agents use; the
library's own scan reads files, asks the services whether a secret is valid, and says of some only
that they are there. Nothing here does I/O. What is left out are its detectors that hit ordinary
ids: short prefixes, and entropy, which is off unless asked for.

In JSON, in a URL and on a terminal a word may follow an escape that ends in a letter: ``\n``, a
colour, ``%3D``. So a text with escapes is looked at twice: as it is, and with blanks for them.
"""

from __future__ import annotations

import importlib
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

from holdfast.errors import shown
from holdfast.sessions.secret_names import SecretNames, is_placeholder
from holdfast.stores.opening import MissingStoreExtraError

SECRET = "secret"  # noqa: S105 - the name of a kind
EMAIL = "email"
PHONE = "phone"


@dataclass(frozen=True, slots=True)
class Found:
    """Something to take out of a text."""

    start: int
    end: int
    kind: str
    distinct: bool = True
    """Whether the same characters mean the same wherever they stand; a password may be a word."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """How one kind of secret looks."""

    kind: str
    regex: re.Pattern[str]
    group: int = 0
    """Which part of what is found is the secret."""
    alone: bool = False
    """Whether it must be a word of its own: the pattern would also fit a part of an id."""
    hints: tuple[str, ...] = ()
    """One of these is in every text that has such a secret."""
    check: Callable[[str], bool] = bool
    distinct: bool = True


# Module and class in detect-secrets, the kind, and what else `Pattern` says.
LIBRARY: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
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
    ("npm", "NpmDetector", "npm token", {"group": 1, "hints": (":_authToken=",)}),
    ("openai", "OpenAIDetector", "OpenAI key", {"hints": ("T3BlbkFJ",)}),
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
MORE: tuple[tuple[str, str, tuple[str, ...]], ...] = (
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
)
PRIVATE_KEY = re.compile(
    r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
    rf"(?=[^-]{{0,400}}?{BASE64}{{32}})"
    rf"(?:[\s\S]{{0,50000}}?-----END[^-\n]{{1,60}}-----|{BASE64}*)"
    r"|PuTTY-User-Key-File-\d[\s\S]{0,50000}?Private-MAC: *[0-9a-f]+"
)
BEARER = re.compile(r"\bbearer\s+((?=[A-Za-z._~+/-]*\d)[A-Za-z0-9._~+/-]{16,}=*)", re.IGNORECASE)
BASIC = re.compile(r"authorization\W{1,8}basic\s+([A-Za-z0-9+/]{8,}=*)", re.IGNORECASE)
IN_URL = re.compile(r"://[^\s:/?#@\[\]\"'<>]*:([^\s/@\"'<>]+)@")
WORD = re.compile(r"[A-Za-z0-9_-]*")
JWT_REST = re.compile(r"[A-Za-z0-9_=+/-]*(?:\.[A-Za-z0-9_=+/-]+)*")

DOMAIN = r"(?!\d+\.\d)(?![1-9]x\.)(?:[^\W_](?:[\w-]*[^\W_])?\.)+(?:xn--[\w-]+|[^\W\d_]{2,24})"
# Not where a call or an index follows: a@b.mean() is Python.
ADDRESS = re.compile(rf"(?<![\w.%+-])(?!git@)[\w.%+-]++@{DOMAIN}(?![\w(\[])")
QUOTED_ADDRESS = re.compile(rf"(?<![\w.+-])[\w.+-]++%40{DOMAIN}(?!\w)")
PLUS = re.compile(r"[+\uff0b](?:[^\w\n]{0,3}\d){7}")
DIGITS = re.compile(r"(?:\d[^\w\n]{0,3}){6}\d")
# Seconds since the epoch, and decimals.
OTHER_NUMBER = re.compile(r"1\d{9}(?:\d{3}){0,3}|[+-]?\d+\.\d+")
LONG_WORD = re.compile(r"[A-Za-z0-9+/=_-]{20,}")

# Escapes of JSON, repr() and URLs, also of one inside the other, and the colours of terminals. What
# is quoted once more in a URL has %25 for %.
QUOTED = r"%(?:25){0,3}"
BACKSLASH = rf"(?:\\|{QUOTED}5[cC])"
ESCAPE = re.compile(
    rf"""(?P<line> {BACKSLASH}(?:[nr]|u000[aAdD]|x0[aAdD]) | {QUOTED}0[aAdD] )
        | (?: \x1b | {BACKSLASH}(?:u001[bB]|x1[bB]|033|e) | {QUOTED}1[bB] )
            (?: \[ | {QUOTED}5[bB] ) (?: [0-9;?] | {QUOTED}3[bB] ){{0,40}} [A-Za-z]
        | {BACKSLASH}(?:[tbf]|u[0-9a-fA-F]{{4}}|U[0-9a-fA-F]{{8}}|x[0-9a-fA-F]{{2}})
        | {QUOTED}[0-9a-fA-F]{{2}}""",
    re.VERBOSE,
)
LONGEST_ESCAPE = 80  # but for colours that are quoted several times


class Detector:
    """Finds what is to be taken out of texts."""

    def __init__(
        self, *, secrets: bool, emails: bool, phones: bool, entropy: bool, region: str | None
    ) -> None:
        self.names: SecretNames | None = None
        self._finders: list[Callable[[str], Iterable[Found]]] = []
        if secrets:
            denylist = library("detect_secrets.plugins.keyword").DENYLIST
            self.names = names = SecretNames(denylist)
            self._finders += [Tokens().find, partial(assigned, names)]
        if secrets and entropy:
            self._finders.append(entropy_finder())
        if emails:
            self._finders.append(addresses)
        if phones:
            self._finders.append(phone_finder(region))

    def find(self, text: str) -> list[Found]:
        """Everything in a text, in no order; places may overlap."""
        found = [each for finder in self._finders for each in finder(text)]
        plain = without_escapes(text)
        if plain != text:
            more = [each for finder in self._finders for each in finder(plain)]
            found += uncovered(more, found)
        return found


def without_escapes(text: str) -> str:
    """A text with blanks for its escapes, each character of the rest in its place.

    Then what follows an escape begins a word, and what follows a line break begins a line.
    """
    if "\\" in text or "%" in text or "\x1b" in text:
        return ESCAPE.sub(blank, text)
    return text


def blank(escape: re.Match[str]) -> str:
    """As many blanks as an escape has characters."""
    return ("\n" if escape["line"] else " ") * len(escape[0])


def uncovered(more: Iterable[Found], found: Iterable[Found]) -> list[Found]:
    """Those of ``more`` that are not a part of one that was found already."""
    spans = sorted((each.start, each.end) for each in found)
    starts = [start for start, _ in spans]
    ends = [0, *accumulate((end for _, end in spans), max)]
    return [each for each in more if ends[bisect_right(starts, each.start)] < each.end]


def assigned(names: SecretNames, text: str) -> Iterator[Found]:
    """Secrets that are known by the name that they stand after."""
    for start, end in names.assigned(text):
        yield Found(start, end, SECRET, distinct=False)


class Tokens:
    """Secrets that are known by how they look."""

    def __init__(self) -> None:
        aws = library("detect_secrets.plugins.aws").AWSKeyDetector.denylist
        jwt = library("detect_secrets.plugins.jwt").JwtTokenDetector
        basic = library("detect_secrets.plugins.basic_auth").BasicAuthDetector.denylist
        self._is_jwt = jwt.is_formally_valid
        self._jwt = tuple(jwt.denylist)
        patterns = [
            Pattern("AWS key", aws[0], hints=("A3T", "ABIA", "ACCA", "AKIA", "ASIA")),
            Pattern("AWS key", aws[1], group=1, hints=("aws", "AWS", "Aws")),
            Pattern("private key", PRIVATE_KEY, hints=("PRIVATE KEY", "PuTTY")),
            Pattern("token", BEARER, group=1, hints=("earer", "EARER")),
            Pattern(SECRET, BASIC, group=1, hints=("asic", "ASIC")),
        ]
        for regex in (*basic, IN_URL):
            patterns.append(
                Pattern(
                    SECRET, regex, group=1, hints=("://",), check=is_no_template, distinct=False
                )
            )
        for module, name, kind, options in LIBRARY:
            plugin = getattr(library(f"detect_secrets.plugins.{module}"), name)
            patterns += [Pattern(kind, regex, **options) for regex in plugin.denylist]
        patterns += [Pattern(kind, re.compile(text), hints=hints) for kind, text, hints in MORE]
        self._patterns = patterns
        # Hint by hint in one go: most texts have none of them.
        self._hints = [
            (hint, at) for at, pattern in enumerate(patterns) for hint in pattern.hints or ("",)
        ]

    def find(self, text: str) -> Iterator[Found]:
        """The tokens of a text."""
        for likely in {at for hint, at in self._hints if hint in text}:
            pattern = self._patterns[likely]
            for match in pattern.regex.finditer(text):
                start, end = match.span(pattern.group)
                if pattern.alone and not is_alone(text, start, end):
                    continue
                if pattern.group == 0 and pattern.regex is not PRIVATE_KEY:
                    # The library looks for as much as tells the kind; all of it has to go.
                    end = ending(WORD, text, end)
                if start < end and pattern.check(text[start:end]):
                    yield Found(start, end, pattern.kind, pattern.distinct)
        if "eyJ" in text:
            yield from self._web_tokens(text)

    def _web_tokens(self, text: str) -> Iterator[Found]:
        for regex in self._jwt:
            for match in regex.finditer(text):
                if self._is_jwt(match[0].rstrip(".")):
                    yield Found(match.start(), ending(JWT_REST, text, match.end()), "JWT")


def is_alone(text: str, start: int, end: int) -> bool:
    """Whether no letter, digit, dash or underscore stands beside it."""
    beside = text[max(0, start - 1) : start] + text[end : end + 1]
    return not any(char.isalnum() or char in "-_" for char in beside)


def is_no_template(value: str) -> bool:
    """Whether it is what it seems, and not ``<password>``."""
    return not is_placeholder(value)


def ending(regex: re.Pattern[str], text: str, at: int) -> int:
    """Where something ends that goes on like this."""
    match = regex.match(text, at)
    return at if match is None else match.end()


def addresses(text: str) -> Iterator[Found]:
    """Email addresses, also as they stand in a URL."""
    if "@" in text:
        for match in ADDRESS.finditer(text):
            start, end = match.span()
            if text[start - 1 : start] == "\\" and (escape := ESCAPE.match(text, start - 1)):
                start = min(escape.end(), text.index("@", start))
            if text[start] != "@":  # as of a decorator at the start of a line
                yield Found(start, end, EMAIL)
    if "%40" in text:
        for match in QUOTED_ADDRESS.finditer(text):
            yield Found(*match.span(), EMAIL)


def phone_finder(region: str | None) -> Callable[[str], Iterator[Found]]:
    """Finds phone numbers with a plus, and with a region those that are dialled within it."""
    phonenumbers = library("phonenumbers")
    if region is not None and region not in phonenumbers.SUPPORTED_REGIONS:
        raise ValueError(
            f"{shown(region)} is no region of phone numbers: they have two letters as in DE or US"
        )
    leniency = phonenumbers.Leniency.VALID
    likely = PLUS if region is None else DIGITS

    def find(text: str) -> Iterator[Found]:
        if likely.search(text) is None:
            return
        for match in phonenumbers.PhoneNumberMatcher(text, region, leniency=leniency):
            other = OTHER_NUMBER.fullmatch(match.raw_string)
            if is_alone(text, match.start, match.end) and other is None:
                yield Found(match.start, match.end, PHONE)

    return find


def entropy_finder() -> Callable[[str], Iterator[Found]]:
    """Finds words that are too random to be words; ids are, too."""
    plugins = library("detect_secrets.plugins.high_entropy_strings")
    base64, hexadecimal = plugins.Base64HighEntropyString(), plugins.HexHighEntropyString()

    def find(text: str) -> Iterator[Found]:
        for match in LONG_WORD.finditer(text):
            word = match[0]
            plugin = hexadecimal if re.fullmatch(r"[0-9a-fA-F]+", word) else base64
            if plugin.calculate_shannon_entropy(word) > plugin.entropy_limit:
                yield Found(*match.span(), SECRET)

    return find


def library(module: str) -> Any:
    """A module of the libraries that redaction needs, or an error that says how to get them."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != module.partition(".")[0]:
            raise
        raise MissingStoreExtraError(
            f"redaction needs {error.name}: pip install 'holdfast[redaction]', or name paths alone",
            "redaction",
        ) from None
