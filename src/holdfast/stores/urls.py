"""A store's URL: its parts, its options, and its secrets kept off every screen.

A backend takes the options that it knows; what nobody took is refused, so that a misspelt option is
an error and not a surprise. The password never leaves this module but to the one who connects.
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from holdfast.errors import StateStoreError, shown

SECRET_WORDS = ("pass", "secret", "token", "key", "credential", "sas", "signature", "pwd")
MASK = "***"
YES = {"1": True, "true": True, "yes": True, "on": True}
NO = {"0": False, "false": False, "no": False, "off": False}


class StoreURL:
    """A parsed URL. Its ``str`` and ``repr`` are masked; ``scrubbed`` masks any other text."""

    def __init__(self, url: str) -> None:
        if not isinstance(url, str):
            raise TypeError(f"a store's URL is a str, not {shown(url)}")
        scheme = url.partition(":")[0].lower()
        if ":" not in url or not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme):
            # What has no scheme may be anything, a password too: it is not repeated.
            raise StateStoreError(
                "a store's URL begins with its scheme, as in sqlite:///state.db: this one has none"
            )
        self.scheme = scheme
        try:
            self.parts: SplitResult = urlsplit(url)
            self.port = self.parts.port
            pairs = parse_qsl(self.parts.query, keep_blank_values=True, strict_parsing=True)
        except ValueError as error:
            if url.endswith("?"):
                raise StateStoreError(f"the {scheme} URL ends in '?' with no option after it") from None
            raise StateStoreError(
                f"the {scheme} URL cannot be read ({str(error).partition(':')[0]}): special characters in a "
                "user name or password are percent-encoded, as in p%40ss"
            ) from None
        self.options: dict[str, str] = {}
        for name, value in pairs:
            if name in self.options:
                raise StateStoreError(f"the {scheme} URL gives the option {name} twice")
            self.options[name] = value
        self._secrets = sorted(self._find_secrets(), key=len, reverse=True)
        self._given = dict(self.options)

    @property
    def path(self) -> str:
        """The path with its percent-encoding undone."""
        return unquote(self.parts.path)

    @property
    def host(self) -> str:
        """The host, or an empty text."""
        return self.parts.hostname or ""

    @property
    def user(self) -> str | None:
        """The user's name, where one is given."""
        return None if self.parts.username is None else unquote(self.parts.username)

    @property
    def password(self) -> str | None:
        """The password, where one is given. A secret."""
        return None if self.parts.password is None else unquote(self.parts.password)

    def take(self, name: str, default: str | None = None) -> str | None:
        """An option's text, which is then known to somebody."""
        return self.options.pop(name, default)

    def take_number(self, name: str, default: float, *, least: float = 0.0) -> float:
        """An option that is a number."""
        text = self.options.pop(name, None)
        if text is None:
            return default
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not least <= number < float("inf"):
            raise StateStoreError(
                f"the option {name} of the {self.scheme} URL is a number from {least:g} up, not {text!r}"
            )
        return number

    def take_flag(self, name: str) -> bool:
        """An option that is true or false."""
        text = self.options.pop(name, "false").lower()
        flag = (YES | NO).get(text)
        if flag is None:
            raise StateStoreError(
                f"the option {name} of the {self.scheme} URL is true or false, not {text!r}"
            )
        return flag

    def refuse_rest(self, known: tuple[str, ...] = ()) -> None:
        """An option that nobody took is an error."""
        if self.options:
            name = next(iter(self.options))
            also = f"the backend's own are {', '.join(known)}; " if known else ""
            raise StateStoreError(
                f"the {self.scheme} URL has an option that nobody knows: {name}. {also}"
                "those of any store are compress, encrypt, prefix, read_only and retry"
            )

    def text(self, *, scheme: str | None = None) -> str:
        """The URL with the options that are left, secrets and all: for the driver that connects."""
        return self.parts._replace(
            scheme=scheme or self.scheme, query=urlencode(self.options, quote_via=quote), fragment=""
        ).geturl()

    def scrubbed(self, text: str) -> str:
        """Any text with this URL's secrets masked."""
        for secret in self._secrets:
            # A short one is masked where it stands alone, so as not to riddle every word.
            pattern = re.escape(secret)
            text = re.sub(pattern if len(secret) > 5 else rf"(?<!\w){pattern}(?!\w)", MASK, text)
        return text

    def __str__(self) -> str:
        parts = self.parts
        netloc = parts.netloc
        if "@" in netloc:
            user, _, host = netloc.rpartition("@")
            name, colon, _ = user.partition(":")
            # A name alone may be a token.
            netloc = f"{name}:{MASK}@{host}" if colon else f"{MASK}@{host}"
        query = urlencode(
            {
                name: MASK if is_secret(name) else value
                for name, value in self._given.items()
            },
            safe="*/:",
        )
        slashes = "//" if netloc or parts.path.startswith("//") or ":///" in parts.geturl() else ""
        return f"{self.scheme}:{slashes}{netloc}{parts.path}" + (f"?{query}" if query else "")

    def __repr__(self) -> str:
        return f"<StoreURL {self}>"

    def _find_secrets(self) -> set[str]:
        found = {value for name, value in self.options.items() if is_secret(name)}
        if self.parts.password is not None:
            found.add(self.parts.password)
        elif self.parts.username is not None:
            found.add(self.parts.username)
        return {form for text in found for form in (text, unquote(text), quote(text, safe="")) if form}


def is_secret(option: str) -> bool:
    """Whether an option's name says that its value is not to be shown."""
    return any(word in option.lower() for word in SECRET_WORDS)
