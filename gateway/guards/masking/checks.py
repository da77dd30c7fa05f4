"""Whether what looks like a number of a card, an account or an address is one."""

import ipaddress
import re

CARD_DIGITS = range(13, 20)
CARD_STARTS = "23456"
IBAN_LENGTHS = range(15, 35)
LETTER_DIGITS = {ord("A") + n: str(10 + n) for n in range(26)}
HARMLESS_IPS = ("0.0.0.0", "255.255.255.255")  # noqa: S104 - not to listen on
PHONE_DIGITS = range(8, 16)
PARTED = re.compile(r"[ -]")


def card_length(text: str) -> int:
    """How much of it is the number of a card, by Luhn's sum; 0: nothing. It may end at a blank or hyphen."""
    for end in (len(text), *(found.start() for found in reversed(list(PARTED.finditer(text))))):
        digits = PARTED.sub("", text[:end])
        if len(digits) in CARD_DIGITS and digits[0] in CARD_STARTS and _luhn(digits):
            return end
    return 0


def iban_length(text: str) -> int:
    """How much of it is an IBAN, by its checksum; 0: nothing. It may end at a blank: one pass, as each end's remainder
    follows from that of the end before."""
    found, value, head, end = 0, 0, int(text[:4].translate(LETTER_DIGITS)), -1
    for blanks, group in enumerate(text.split(" ")):
        end += len(group) + 1
        if digits := group[0 if blanks else 4 :].translate(LETTER_DIGITS):
            value = (value * 10 ** len(digits) + int(digits)) % 97
        if end - blanks in IBAN_LENGTHS and (value * 10**6 + head) % 97 == 1:  # country and check digits come last
            found = end
    return found


def ip_length(text: str) -> int:
    """The length of an address that may tell something; 0 for loopback, and for what is none."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return 0
    if address.is_loopback or text in HARMLESS_IPS:
        return 0
    # `a::b` is more often a name in a program.
    return 0 if address.version == 6 and len(list(filter(None, text.split(":")))) < 3 else len(text)


def phone_length(text: str) -> int:
    """The length of a number that people may have."""
    return len(text) if sum(map(str.isdigit, text)) in PHONE_DIGITS else 0


def secret_length(text: str) -> int:
    """The length of what is random enough: words with hyphens have no digits."""
    return len(text) if any(map(str.isdigit, text)) else 0


def _luhn(digits: str) -> bool:
    total = 0
    for place, sign in enumerate(reversed(digits)):
        digit = int(sign) * (1 + place % 2)
        total += digit - 9 if digit > 9 else digit
    return total % 10 == 0
