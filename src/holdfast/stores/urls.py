"""Store URLs: their parts, their options, and the masking of their secrets.

A backend takes the options that it knows. An option that is left over is an error, so a misspelt
option is never ignored. Only the code that connects sees the password.

The message about a malformed URL repeats no part of it: if a password was not percent-encoded, it
is impossible to tell where it starts and ends.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from urllib.parse import SplitResult, parse_qsl, quote, quote_plus, unquote, urlencode, urlsplit

from holdfast.errors import StateStoreError, short_repr

SECRET_WORDS = ("pass", "secret", "token", "key", "credential", "sas", "signature", "pwd")
MASK = "***"
FLAGS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}
WRAPPER_OPTIONS = ("compress", "encrypt", "prefix", "read_only", "retry")
"""The options that ``open_state_store`` itself takes."""

MAX_LENGTH = 4096
LOCAL_SCHEMES = ("file", "sqlite")
"""Schemes whose paths are those of the file system, which may not be valid text."""

HOST = re.compile(r"(\[[0-9A-Fa-f:.%\w]*\]|[^:\[\]]*)(?::(\d{0,5}))?", re.ASCII)
ADDRESS = re.compile("://[^/]*@")
USER = re.compile("[^/]*:[^/]*@")
SECRET = re.compile(rf":.*@|[\w-]*(?:{'|'.join(SECRET_WORDS)})[\w-]*=", re.DOTALL | re.IGNORECASE)
PERCENT_ENCODE = "percent-encode special characters of a user name or password, as in p%40ss"
PATH = re.compile(r"[\w./ +-]+")
DATABASE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
SURROGATE = re.compile(r"[\ud800-\udfff]")
# Too short to be a secret itself: 32 bytes are 43 characters in base64 and 64 in hexadecimal.
VARIABLE_NAME = re.compile(r"[A-Z_][A-Z0-9_]{0,62}|[A-Za-z_][A-Za-z0-9_]{0,39}")


class StoreURLError(StateStoreError):
    """A store URL is malformed. ``suggestion`` is the URL that was probably meant, or None."""

    def __init__(self, message: str, *, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.suggestion = suggestion


class StoreURL:
    """A parsed URL. Its ``str`` and ``repr`` are masked; ``mask`` masks any other text.

    If there are several hosts, separated by commas, ``host`` and ``port`` are those of the first.

    Raises:
        StateStoreError: The URL is malformed; the message does not repeat it.
        TypeError: The URL is not a str.

    """

    def __init__(self, url: str) -> None:
        if not isinstance(url, str):
            raise TypeError(f"store URL must be a str, got {short_repr(url)}")
        url = url.strip()
        if len(url) > MAX_LENGTH:
            raise StateStoreError(
                f"store URL must have at most {MAX_LENGTH:,} characters, got {len(url):,}"
            )
        scheme, colon, rest = url.partition(":")
        self.scheme = scheme.lower()
        if not colon or not re.fullmatch(r"[a-z][a-z0-9+.-]{0,31}", self.scheme):
            # Not repeated: without a scheme it may be anything, even a password.
            raise StoreURLError(
                "store URL has no scheme; write one as in sqlite:///state.db",
                suggestion=suggest_url(url),
            )
        if CONTROL.search(url):
            raise self._malformed("it contains a control character", "write it as %0A or the like")
        if "%00" in url:
            raise self._malformed("it contains a NUL as %00", "remove it")
        if "#" in url:
            raise self._malformed("it contains a '#'", "write it as %23")
        try:
            self.parts: SplitResult = urlsplit(url)
        except ValueError:
            raise self._malformed("its host is invalid", PERCENT_ENCODE) from None
        # For an empty host, urlsplit does not tell whether there were slashes.
        self._slashes = "//" if rest.startswith("//") else ""
        self._check_text(url)
        self._check_slashes(rest)
        if ADDRESS.search(self.parts.netloc + self.parts.path):
            # Two URLs run together: the password of the second would not be masked.
            raise self._malformed("it contains a second address with an '@'", PERCENT_ENCODE)
        self.host, self.port = self._parse_first_host()
        self.options = self._parse_options(url)
        self._all_options = dict(self.options)
        self._secrets = sorted(self._find_secrets(), key=len, reverse=True)

    @property
    def path(self) -> str:
        """The path, percent-decoded."""
        return unquote(self.parts.path)

    @property
    def user(self) -> str | None:
        """The user name, if any."""
        return None if self.parts.username is None else unquote(self.parts.username)

    @property
    def password(self) -> str | None:
        """The password, if any. A secret."""
        return None if self.parts.password is None else unquote(self.parts.password)

    def take(self, name: str, default: str | None = None) -> str | None:
        """Return the text of an option and remove the option from those left over."""
        return self.options.pop(name, default)

    def take_number(self, name: str, default: float, *, least: float = 0.0) -> float:
        """Take an option that is a number.

        Raises:
            StateStoreError: It is not a number, or less than ``least``.

        """
        text = self.options.pop(name, None)
        if text is None:
            return default
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not least <= number < float("inf"):
            raise self._invalid_option(name, f"a number of at least {least:g}", text)
        return number

    def take_count(self, name: str, default: int, *, least: int = 0) -> int:
        """Take an option that is a whole number.

        Raises:
            StateStoreError: It is not a whole number, or less than ``least``.

        """
        text = self.options.pop(name, None)
        if text is None:
            return default
        if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < least:
            raise self._invalid_option(name, f"a whole number of at least {least}", text)
        return int(text)

    def take_flag(self, name: str, *, default: bool = False) -> bool:
        """Take an option that is true or false.

        Raises:
            StateStoreError: It is neither.

        """
        text = self.options.pop(name, None)
        if text is None:
            return default
        flag = FLAGS.get(text.lower())
        if flag is None:
            raise self._invalid_option(name, "true or false", text)
        return flag

    def reject_unknown_options(self, known: tuple[str, ...] = ()) -> None:
        """Raise if an option is left over.

        Raises:
            StateStoreError: There is one. The message lists the ``known`` ones.

        """
        if self.options:
            name = next(iter(self.options))
            near = get_close_matches(name.lower(), (*known, *WRAPPER_OPTIONS), n=1)
            hint = f", did you mean {near[0]}?" if near else ";"
            own = f" this store has {', '.join(known)};" if known else ""
            raise StateStoreError(
                f"unknown option {short_repr(name)} in the {self.scheme} URL{hint}{own} "
                f"every store has {', '.join(WRAPPER_OPTIONS)}"
            )

    def text(self, *, scheme: str | None = None) -> str:
        """Return the URL with the options left over and with its secrets, for a driver."""
        query = urlencode(self.options, quote_via=quote)
        return self._join(scheme or self.scheme, self.parts.netloc, query)

    def mask(self, text: str) -> str:
        """Return a text with this URL's secrets masked."""
        for secret in self._secrets:
            # A short secret is masked only as a whole word, so that messages stay readable.
            pattern = re.escape(secret)
            text = re.sub(pattern if len(secret) > 5 else rf"(?<!\w){pattern}(?!\w)", MASK, text)
        return text

    def __str__(self) -> str:
        user, at, hosts = self.parts.netloc.rpartition("@")
        name, colon, _ = user.partition(":")
        # A name without a password may be a token.
        masked_user = f"{name}:{MASK}" if colon else MASK
        query = {
            name: MASK if is_secret_value(name, value) else value
            for name, value in self._all_options.items()
        }
        return self._join(
            self.scheme, f"{masked_user}@{hosts}" if at else hosts, urlencode(query, safe="*/:")
        )

    def __repr__(self) -> str:
        return f"<StoreURL {self}>"

    def _join(self, scheme: str, netloc: str, query: str) -> str:
        """Rebuild the URL as it was written; ``urlunsplit`` would add or drop slashes."""
        return f"{scheme}:{self._slashes}{netloc}{self.parts.path}" + (f"?{query}" if query else "")

    def _check_text(self, url: str) -> None:
        """Reject lone surrogates, with which Python represents undecodable bytes."""
        rest = url.replace(self.parts.path, "", 1) if self.scheme in LOCAL_SCHEMES else url
        if SURROGATE.search(rest):
            raise self._malformed("it contains a lone surrogate", PERCENT_ENCODE)

    def _check_slashes(self, rest: str) -> None:
        """Reject an address that would be parsed as a path, with its password unmasked."""
        if not rest or rest.startswith("//") or self.scheme == "memory":
            return
        if self.scheme not in LOCAL_SCHEMES:
            raise self._malformed("it has no '//' before the host", f"write {self.scheme}://host")
        if USER.match(rest):
            raise self._malformed("it has a user and a host", "write an '@' in a path as %40")

    def _parse_first_host(self) -> tuple[str, int | None]:
        user, _, hosts = self.parts.netloc.rpartition("@")
        if any(piece.count("@") > 1 for piece in self.parts.netloc.split(",")):
            # Drivers end the password at the first '@' and show the rest as a host.
            raise self._malformed("it has two '@' before the host", PERCENT_ENCODE)
        if ":" in hosts and not user and "@" in self.parts.path + self.parts.query:
            # What was parsed as host:port is a user and the start of a password.
            raise self._malformed("it has an '@' after the host", PERCENT_ENCODE)
        parsed = []
        for text in hosts.split(","):
            host = HOST.fullmatch(text)
            if host is None or int(host[2] or 0) > 65535:
                raise self._malformed("its host or port is invalid", PERCENT_ENCODE)
            parsed.append((host[1].strip("[]"), int(host[2]) if host[2] else None))
        return parsed[0]

    def _parse_options(self, url: str) -> dict[str, str]:
        options: dict[str, str] = {}
        if "?" not in url:
            return options
        try:
            pairs = parse_qsl(self.parts.query, keep_blank_values=True, strict_parsing=True)
        except ValueError:
            pairs = []
        # A name with an '@' is part of a password with an unescaped '?', and of the address.
        if not pairs or any(not name or "@" in name for name, _ in pairs):
            raise self._malformed("after '?' it is not name=value&name=value", PERCENT_ENCODE)
        for name, value in pairs:
            if name in options:
                raise StateStoreError(
                    f"option {short_repr(name)} appears twice in the {self.scheme} URL; remove one"
                )
            options[name] = value
        return options

    def _find_secrets(self) -> set[str]:
        found = {value for name, value in self.options.items() if is_secret_value(name, value)}
        # Each of several hosts may have a user; a comma may also be part of a password.
        for piece in (self.parts.netloc, *self.parts.netloc.split(",")):
            user, at, _ = piece.rpartition("@")
            if at:
                _, colon, password = user.partition(":")
                found.add(password if colon else user)
        # A password that equals the user name appears in ordinary messages of the server.
        public = {self.scheme, self.host, self.path.strip("/")}
        if self.password is not None:
            public.add(str(self.user))
        return {
            spelling
            for secret in found
            for spelling in spell_secret(secret)
            if spelling and spelling not in public
        }

    def _invalid_option(self, name: str, expected: str, text: str) -> StateStoreError:
        return StateStoreError(
            f"option {name} of the {self.scheme} URL must be {expected}, got {short_repr(text)}"
        )

    def _malformed(self, problem: str, remedy: str) -> StateStoreError:
        return StateStoreError(f"malformed {self.scheme} URL: {problem}; {remedy}")


def mask_secrets(text: str) -> str:
    """Return a text, which need not be a URL, up to the first possible secret."""
    secret = SECRET.search(text)
    if secret is None:
        return text
    # The whole rest is masked, because the end of a password cannot be found.
    return text[: secret.start()] + (":" if secret[0].startswith(":") else "") + MASK


def suggest_url(text: str) -> str | None:
    """Return the URL for a path that was given instead of one, or None."""
    if not PATH.fullmatch(text):
        return None  # perhaps a password
    if text.endswith(DATABASE_SUFFIXES):
        return f"sqlite:///{text}"
    if text.startswith("/"):
        return f"file://{text}"
    return f"file:{text}" if text.startswith("./") or text.endswith("/") else None


def spell_secret(secret: str) -> set[str]:
    """Return the spellings of a secret that may appear in a driver's message."""
    plain = unquote(secret)
    escaped = {quote(plain), quote(plain, safe=""), quote_plus(plain), repr(plain)[1:-1]}
    return {secret, plain, *escaped}


def is_secret_option(option: str) -> bool:
    """Return whether an option's name indicates a secret."""
    return any(word in option.lower() for word in SECRET_WORDS)


def is_secret_value(option: str, value: str) -> bool:
    """Return whether an option's value must be masked.

    That includes a key given instead of the name of its environment variable, and an address with a
    password in it.
    """
    misplaced_key = option == "encrypt" and not VARIABLE_NAME.fullmatch(value)
    return is_secret_option(option) or misplaced_key or ADDRESS.search(value) is not None
