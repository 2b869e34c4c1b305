r"""Find secrets, email addresses, phone numbers and other personal numbers in a text.

The time is linear in the length of the text.

In JSON, URLs and terminal output, a word may follow an escape that ends in a letter: ``\n``,
``%3D``, a color. So a text with escapes is searched twice: as it is, and with blanks for them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import accumulate

from holdfast.errors import short_repr
from holdfast.redaction.findings import SECRET, Finding, import_library, is_separate_word
from holdfast.redaction.personal_numbers import find_cards, find_ibans, find_ssns
from holdfast.redaction.secret_names import SecretNames
from holdfast.redaction.secret_patterns import TokenPatterns

__all__ = ["EMAIL", "PHONE", "SECRET", "Detector", "Finding", "blank_escapes"]

EMAIL = "email"
PHONE = "phone"


DOMAIN = r"(?!\d+\.\d)(?![1-9]x\.)(?:[^\W_](?:[\w-]*[^\W_])?\.)+(?:xn--[\w-]+|[^\W\d_]{2,24})"
# Not before a call or an index: a@b.mean() is Python.
ADDRESS = re.compile(rf"(?<![\w.%+-])(?!git@)[\w.%+-]++@{DOMAIN}(?![\w(\[])")
QUOTED_ADDRESS = re.compile(rf"(?<![\w.+-])[\w.+-]++%40{DOMAIN}(?!\w)")
PLUS = re.compile(r"[+\uff0b](?:[^\w\n]{0,3}\d){7}")
DIGITS = re.compile(r"(?:\d[^\w\n]{0,3}){6}\d")
# Seconds since the epoch, and decimals.
OTHER_NUMBER = re.compile(r"1\d{9}(?:\d{3}){0,3}|[+-]?\d+\.\d+")
LONG_WORD = re.compile(r"[A-Za-z0-9+/=_-]{20,}")

# Escapes of JSON, repr() and URLs, also nested, and terminal colors. A URL that is quoted again has
# %25 for %.
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
MAX_ESCAPE = 80  # except for colors that are quoted several times


class Detector:
    """Finds secrets and personal data in texts."""

    def __init__(
        self,
        *,
        secrets: bool,
        emails: bool,
        phones: bool,
        entropy: bool = False,
        region: str | None = None,
        cards: bool = False,
        ibans: bool = False,
        ssns: bool = False,
    ) -> None:
        self.names: SecretNames | None = None
        self._finders: list[Callable[[str], Iterable[Finding]]] = []
        if secrets:
            denylist = import_library("detect_secrets.plugins.keyword").DENYLIST
            self.names = names = SecretNames(denylist)
            self._finders += [TokenPatterns().find, partial(find_assigned, names)]
        if secrets and entropy:
            self._finders.append(make_entropy_finder())
        if emails:
            self._finders.append(find_emails)
        if phones:
            self._finders.append(make_phone_finder(region))
        for wanted, finder in (
            (cards, find_cards),
            (ibans, find_ibans),
            (ssns, find_ssns),
        ):
            if wanted:
                self._finders.append(finder)

    def find(self, text: str) -> list[Finding]:
        """Return all findings in a text, unordered; they may overlap."""
        found = [each for finder in self._finders for each in finder(text)]
        plain = blank_escapes(text)
        if plain != text:
            more = [each for finder in self._finders for each in finder(plain)]
            found += drop_covered(more, found)
        return found


def blank_escapes(text: str) -> str:
    """Return a text of the same length with its escapes blanked out.

    Then the text after an escape starts a word, and the text after a line break starts a line.
    """
    if "\\" in text or "%" in text or "\x1b" in text:
        return ESCAPE.sub(lambda escape: ("\n" if escape["line"] else " ") * len(escape[0]), text)
    return text


def drop_covered(more: Iterable[Finding], found: Iterable[Finding]) -> list[Finding]:
    """Return those of ``more`` that are not part of an earlier finding."""
    spans = sorted((each.start, each.end) for each in found)
    starts = [start for start, _ in spans]
    ends = [0, *accumulate((end for _, end in spans), max)]
    return [each for each in more if ends[bisect_right(starts, each.start)] < each.end]


def find_assigned(names: SecretNames, text: str) -> Iterator[Finding]:
    """Find secrets that follow a telling name."""
    for start, end in names.assigned(text):
        yield Finding(start, end, SECRET, distinct=False)


def find_emails(text: str) -> Iterator[Finding]:
    """Find email addresses, also URL-encoded ones."""
    if "@" in text:
        for match in ADDRESS.finditer(text):
            start, end = match.span()
            if text[start - 1 : start] == "\\" and (escape := ESCAPE.match(text, start - 1)):
                start = min(escape.end(), text.index("@", start))
            if text[start] != "@":  # a decorator at the start of a line
                yield Finding(start, end, EMAIL)
    if "%40" in text:
        for match in QUOTED_ADDRESS.finditer(text):
            yield Finding(*match.span(), EMAIL)


def make_phone_finder(region: str | None) -> Callable[[str], Iterator[Finding]]:
    """Return a function that finds international phone numbers, and national ones of a region."""
    phonenumbers = import_library("phonenumbers")
    if region is not None and region not in phonenumbers.SUPPORTED_REGIONS:
        raise ValueError(
            f"invalid region {short_repr(region)}: must be two letters such as DE or US"
        )
    leniency = phonenumbers.Leniency.VALID
    likely = PLUS if region is None else DIGITS

    def find(text: str) -> Iterator[Finding]:
        if likely.search(text) is None:
            return
        for match in phonenumbers.PhoneNumberMatcher(text, region, leniency=leniency):
            other = OTHER_NUMBER.fullmatch(match.raw_string)
            if is_separate_word(text, match.start, match.end) and other is None:
                yield Finding(match.start, match.end, PHONE)

    return find


def make_entropy_finder() -> Callable[[str], Iterator[Finding]]:
    """Return a function that finds words of high entropy, ids among them."""
    plugins = import_library("detect_secrets.plugins.high_entropy_strings")
    base64, hexadecimal = plugins.Base64HighEntropyString(), plugins.HexHighEntropyString()

    def find(text: str) -> Iterator[Finding]:
        for match in LONG_WORD.finditer(text):
            word = match[0]
            plugin = hexadecimal if re.fullmatch(r"[0-9a-fA-F]+", word) else base64
            if plugin.calculate_shannon_entropy(word) > plugin.entropy_limit:
                yield Finding(*match.span(), SECRET)

    return find
