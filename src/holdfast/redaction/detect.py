r"""Where secrets, email addresses, phone numbers and other personal numbers stand in a text.

The time that it takes is linear in the length of the text, whatever the text.

In JSON, in a URL and on a terminal a word may follow an escape that ends in a letter: ``\n``, a
colour, ``%3D``. So a text with escapes is looked at twice: as it is, and with blanks for them.
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
MAX_ESCAPE = 80  # but for colours that are quoted several times


class Detector:
    """Finds what is to be taken out of texts."""

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
        """Everything in a text, in no order; places may overlap."""
        found = [each for finder in self._finders for each in finder(text)]
        plain = blank_escapes(text)
        if plain != text:
            more = [each for finder in self._finders for each in finder(plain)]
            found += drop_covered(more, found)
        return found


def blank_escapes(text: str) -> str:
    """A text with blanks for its escapes, each character of the rest in its place.

    Then what follows an escape begins a word, and what follows a line break begins a line.
    """
    if "\\" in text or "%" in text or "\x1b" in text:
        return ESCAPE.sub(blank_match, text)
    return text


def blank_match(escape: re.Match[str]) -> str:
    """As many blanks as an escape has characters."""
    return ("\n" if escape["line"] else " ") * len(escape[0])


def drop_covered(more: Iterable[Finding], found: Iterable[Finding]) -> list[Finding]:
    """Those of ``more`` that are not a part of one that was found already."""
    spans = sorted((each.start, each.end) for each in found)
    starts = [start for start, _ in spans]
    ends = [0, *accumulate((end for _, end in spans), max)]
    return [each for each in more if ends[bisect_right(starts, each.start)] < each.end]


def find_assigned(names: SecretNames, text: str) -> Iterator[Finding]:
    """Secrets that are known by the name that they stand after."""
    for start, end in names.assigned(text):
        yield Finding(start, end, SECRET, distinct=False)


def find_emails(text: str) -> Iterator[Finding]:
    """Email addresses, also as they stand in a URL."""
    if "@" in text:
        for match in ADDRESS.finditer(text):
            start, end = match.span()
            if text[start - 1 : start] == "\\" and (escape := ESCAPE.match(text, start - 1)):
                start = min(escape.end(), text.index("@", start))
            if text[start] != "@":  # as of a decorator at the start of a line
                yield Finding(start, end, EMAIL)
    if "%40" in text:
        for match in QUOTED_ADDRESS.finditer(text):
            yield Finding(*match.span(), EMAIL)


def make_phone_finder(region: str | None) -> Callable[[str], Iterator[Finding]]:
    """Finds phone numbers with a plus, and with a region those that are dialled within it."""
    phonenumbers = import_library("phonenumbers")
    if region is not None and region not in phonenumbers.SUPPORTED_REGIONS:
        raise ValueError(
            f"{short_repr(region)} is no region of phone numbers: they have two letters as in DE or US"
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
    """Finds words that are too random to be words; ids are, too."""
    plugins = import_library("detect_secrets.plugins.high_entropy_strings")
    base64, hexadecimal = plugins.Base64HighEntropyString(), plugins.HexHighEntropyString()

    def find(text: str) -> Iterator[Finding]:
        for match in LONG_WORD.finditer(text):
            word = match[0]
            plugin = hexadecimal if re.fullmatch(r"[0-9a-fA-F]+", word) else base64
            if plugin.calculate_shannon_entropy(word) > plugin.entropy_limit:
                yield Finding(*match.span(), SECRET)

    return find
