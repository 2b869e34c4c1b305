"""Find numbers of cards, bank accounts and persons, by their check digits.

These finders are opt-in, because some order numbers pass the same checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.redaction.findings import Finding

CARD = "card number"
IBAN = "IBAN"
SSN = "SSN"

# 12 to 19 digits, grouped or not. The first digit is that of a card network.
CARD_NUMBER = re.compile(r"(?<![\w.-])[2-6]\d{3}(?:[ -]?\d){8,15}(?![\w-]|\.\d)")
CARD_LENGTHS = frozenset((13, 14, 15, 16, 19))
IBAN_NUMBER = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]){11,30}(?![A-Za-z0-9])")
SHORTEST_IBAN, LONGEST_IBAN = 15, 34
# No area 000, 666 or from 900, no group 00, no serial 0000. Without separators it is any number.
SSN_NUMBER = re.compile(
    r"(?<![\w.-])(?!000|666|9)\d{3}(?P<mark>[- ])(?!00)\d{2}(?P=mark)(?!0000)\d{4}(?![\w-]|\.\d)"
)


def find_cards(text: str) -> Iterator[Finding]:
    """Find card numbers that pass the Luhn check."""
    for match in CARD_NUMBER.finditer(text):
        digits = re.sub(r"[ -]", "", match[0])
        if len(digits) in CARD_LENGTHS and len(set(digits)) > 1 and passes_luhn(digits):
            yield Finding(*match.span(), CARD)


def passes_luhn(digits: str) -> bool:
    """Return whether the last digit is the check digit of the others (ISO/IEC 7812)."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (2 if place % 2 else 1)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def find_ibans(text: str) -> Iterator[Finding]:
    """Find IBANs with correct check digits (ISO 13616), grouped or not."""
    for match in IBAN_NUMBER.finditer(text):
        # A word in capitals may follow, so the longest valid prefix is taken.
        end = match.end()
        while end - match.start() >= SHORTEST_IBAN:
            plain = re.sub(r"[ -]", "", text[match.start() : end])
            if SHORTEST_IBAN <= len(plain) <= LONGEST_IBAN and passes_mod_97(plain):
                yield Finding(match.start(), end, IBAN)
                break
            shorter = max(text.rfind(mark, match.start(), end) for mark in " -")
            if shorter < 0:
                break
            end = shorter


def passes_mod_97(iban: str) -> bool:
    """Return whether the digits after the country are the check digits of the rest."""
    return int("".join(str(int(char, 36)) for char in iban[4:] + iban[:4])) % 97 == 1


def find_ssns(text: str) -> Iterator[Finding]:
    """Find social security numbers of the United States, written with dashes or spaces."""
    for match in SSN_NUMBER.finditer(text):
        yield Finding(*match.span(), SSN)
