"""A store's URL: its parts, its options, and its secrets kept off every screen.

A backend takes the options that it knows; what nobody took is refused, so that a misspelt option is
an error and not a surprise. The password never leaves this module but to the one who connects.

A URL that cannot be read is not repeated, not even in part: where a password should have been
percent-encoded, nobody can tell where it begins and ends.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from urllib.parse import SplitResult, parse_qsl, quote, quote_plus, unquote, urlencode, urlsplit

from holdfast.errors import StateStoreError, short_repr

SECRET_WORDS = ("pass", "secret", "token", "key", "credential", "sas", "signature", "pwd")
MASK = "***"
YES = {"1": True, "true": True, "yes": True, "on": True}
NO = {"0": False, "false": False, "no": False, "off": False}
ANY_STORE = ("compress", "encrypt", "prefix", "read_only", "retry")
"""The options that ``open_state_store`` itself takes."""

LONGEST = 4096
LOCAL = ("file", "sqlite")
"""Their paths are those of the system, whose names may be bytes that are no text."""

HOST = re.compile(r"(\[[0-9A-Fa-f:.%\w]*\]|[^:\[\]]*)(?::(\d{0,5}))?", re.ASCII)
ADDRESS = re.compile("://[^/]*@")
USER = re.compile("[^/]*:[^/]*@")
SECRET = re.compile(rf":.*@|[\w-]*(?:{'|'.join(SECRET_WORDS)})[\w-]*=", re.DOTALL | re.IGNORECASE)
PERCENT = "special characters of a name or password are percent-encoded, as in p%40ss"
PATH = re.compile(r"[\w./ +-]+")
DATABASES = (".db", ".sqlite", ".sqlite3")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
SURROGATE = re.compile(r"[\ud800-\udfff]")
# Not what could be a secret itself: 43 characters are 32 bytes in base64, 64 in hexadecimal.
VARIABLE_NAME = re.compile(r"[A-Z_][A-Z0-9_]{0,62}|[A-Za-z_][A-Za-z0-9_]{0,39}")


class StoreURLError(StateStoreError):
    """A store's URL is malformed. ``meant`` is the URL that was probably meant, or None."""

    def __init__(self, message: str, *, meant: str | None = None) -> None:
        super().__init__(message)
        self.meant = meant


class StoreURL:
    """A parsed URL. Its ``str`` and ``repr`` are masked; ``mask`` masks any other text.

    ``host`` and ``port`` are those of the first host where several are given, with commas between.
    """

    def __init__(self, url: str) -> None:
        if not isinstance(url, str):
            raise TypeError(f"a store's URL is a str, not {short_repr(url)}")
        url = url.strip()
        if len(url) > LONGEST:
            raise StateStoreError(
                f"a store's URL has at most {LONGEST:,} characters: this one has {len(url):,}"
            )
        scheme, colon, rest = url.partition(":")
        self.scheme = scheme.lower()
        if not colon or not re.fullmatch(r"[a-z][a-z0-9+.-]{0,31}", self.scheme):
            # What has no scheme may be anything, a password too.
            raise StoreURLError(
                "a store's URL begins with its scheme, as in sqlite:///state.db: this one has none",
                meant=suggest_url(url),
            )
        if CONTROL.search(url):
            raise self._unreadable("it has a control character", "write it as %0A and the like")
        if "%00" in url:
            raise self._unreadable("it has a NUL as %00", "no name of anything has one")
        if "#" in url:
            raise self._unreadable("it has a '#'", "write %23 in its place")
        try:
            self.parts: SplitResult = urlsplit(url)
        except ValueError:
            raise self._unreadable("its host is not one", PERCENT) from None
        # For an empty host urlsplit tells not whether there were slashes.
        self._slashes = "//" if rest.startswith("//") else ""
        self._check_text(url)
        self._check_slashes(rest)
        if ADDRESS.search(self.parts.netloc + self.parts.path):
            # Two URLs run together: the second would be shown with its password.
            raise self._unreadable("it has another address with an '@' in it", PERCENT)
        self.host, self.port = self._first_host()
        self.options = self._read_options(url)
        self._given = dict(self.options)
        self._secrets = sorted(self._find_secrets(), key=len, reverse=True)

    @property
    def path(self) -> str:
        """The path with its percent-encoding undone."""
        return unquote(self.parts.path)

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
            raise self._bad_option(name, f"a number from {least:g} up", text)
        return number

    def take_count(self, name: str, default: int, *, least: int = 0) -> int:
        """An option that is a whole number."""
        text = self.options.pop(name, None)
        if text is None:
            return default
        if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < least:
            raise self._bad_option(name, f"a whole number from {least} up", text)
        return int(text)

    def take_flag(self, name: str) -> bool:
        """An option that is true or false."""
        text = self.options.pop(name, "false")
        flag = (YES | NO).get(text.lower())
        if flag is None:
            raise self._bad_option(name, "true or false", text)
        return flag

    def reject_unknown_options(self, known: tuple[str, ...] = ()) -> None:
        """An option that nobody took is an error."""
        if self.options:
            name = next(iter(self.options))
            near = get_close_matches(name.lower(), (*known, *ANY_STORE), n=1)
            meant = f" (is {near[0]} meant?)" if near else ""
            own = f"the backend's own are {', '.join(known)}; " if known else ""
            raise StateStoreError(
                f"the {self.scheme} URL has an option that nobody knows: {short_repr(name)}{meant}. "
                f"{own}those of any store are {', '.join(ANY_STORE)}"
            )

    def text(self, *, scheme: str | None = None) -> str:
        """The URL with the options that are left, secrets and all: for the driver that connects."""
        query = urlencode(self.options, quote_via=quote)
        return self._joined(scheme or self.scheme, self.parts.netloc, query)

    def mask(self, text: str) -> str:
        """Any text with this URL's secrets masked."""
        for secret in self._secrets:
            # A short one is masked where it stands alone, so as not to riddle every word.
            pattern = re.escape(secret)
            text = re.sub(pattern if len(secret) > 5 else rf"(?<!\w){pattern}(?!\w)", MASK, text)
        return text

    def __str__(self) -> str:
        user, at, hosts = self.parts.netloc.rpartition("@")
        name, colon, _ = user.partition(":")
        # A name alone may be a token.
        shown_user = f"{name}:{MASK}" if colon else MASK
        query = {
            name: MASK if is_secret_value(name, value) else value
            for name, value in self._given.items()
        }
        return self._joined(
            self.scheme, f"{shown_user}@{hosts}" if at else hosts, urlencode(query, safe="*/:")
        )

    def __repr__(self) -> str:
        return f"<StoreURL {self}>"

    def _joined(self, scheme: str, netloc: str, query: str) -> str:
        """As it was written. ``urlunsplit`` adds slashes to some URLs and drops those of others."""
        return f"{scheme}:{self._slashes}{netloc}{self.parts.path}" + (f"?{query}" if query else "")

    def _check_text(self, url: str) -> None:
        """Refuse half of a surrogate pair, by which Python stands for a byte that is no text."""
        rest = url.replace(self.parts.path, "", 1) if self.scheme in LOCAL else url
        if SURROGATE.search(rest):
            raise self._unreadable("it has a lone surrogate, which is no text", PERCENT)

    def _check_slashes(self, rest: str) -> None:
        """Refuse an address that would be taken for a path, and shown with its password."""
        if not rest or rest.startswith("//") or self.scheme == "memory":
            return
        if self.scheme not in LOCAL:
            raise self._unreadable("it has no '//' before the host", f"write {self.scheme}://host")
        if USER.match(rest):
            raise self._unreadable("it has a user and a host", "write an '@' of a path as %40")

    def _first_host(self) -> tuple[str, int | None]:
        user, _, hosts = self.parts.netloc.rpartition("@")
        if any(piece.count("@") > 1 for piece in self.parts.netloc.split(",")):
            # Drivers take the first for the end of the password, and show what follows as a host.
            raise self._unreadable("it has two '@' before the host", PERCENT)
        if ":" in hosts and not user and "@" in self.parts.path + self.parts.query:
            # What reads as host:port is a user and the beginning of a password.
            raise self._unreadable("it has an '@' behind the host", PERCENT)
        found = []
        for text in hosts.split(","):
            host = HOST.fullmatch(text)
            if host is None or int(host[2] or 0) > 65535:
                raise self._unreadable("its host or port is not one", PERCENT)
            found.append((host[1].strip("[]"), int(host[2]) if host[2] else None))
        return found[0]

    def _read_options(self, url: str) -> dict[str, str]:
        options: dict[str, str] = {}
        if "?" not in url:
            return options
        try:
            pairs = parse_qsl(self.parts.query, keep_blank_values=True, strict_parsing=True)
        except ValueError:
            pairs = []
        # A name with an '@' is a password with a '?' that was not percent-encoded, and an address.
        if not pairs or any(not name or "@" in name for name, _ in pairs):
            raise self._unreadable("what follows '?' is not name=value&name=value", PERCENT)
        for name, value in pairs:
            if name in options:
                raise StateStoreError(
                    f"the {self.scheme} URL gives the option {short_repr(name)} twice: leave one"
                )
            options[name] = value
        return options

    def _find_secrets(self) -> set[str]:
        found = {value for name, value in self.options.items() if is_secret_value(name, value)}
        # Several hosts may have a user each; a comma may also be part of a password.
        for piece in (self.parts.netloc, *self.parts.netloc.split(",")):
            user, at, _ = piece.rpartition("@")
            if at:
                _, colon, password = user.partition(":")
                found.add(password if colon else user)
        # A password that is also the user's name, say, is told by every message of the server.
        public = {self.scheme, self.host, self.path.strip("/")}
        if self.password is not None:
            public.add(str(self.user))
        return {
            form for secret in found for form in spell_secret(secret) if form and form not in public
        }

    def _bad_option(self, name: str, wanted: str, text: str) -> StateStoreError:
        return StateStoreError(
            f"the option {name} of the {self.scheme} URL is {wanted}, not {short_repr(text)}"
        )

    def _unreadable(self, why: str, remedy: str) -> StateStoreError:
        return StateStoreError(f"the {self.scheme} URL cannot be read: {why}; {remedy}")


def mask_secrets(text: str) -> str:
    """Return a text that is not a URL of a store up to what may be a secret in it."""
    found = SECRET.search(text)
    if found is None:
        return text
    # All of the rest: where a password ends, nobody can tell.
    return text[: found.start()] + (":" if found[0].startswith(":") else "") + MASK


def suggest_url(text: str) -> str | None:
    """The URL for a path that was given in its place; None where it may be anything else."""
    if not PATH.fullmatch(text):
        return None  # a password, say
    if text.endswith(DATABASES):
        return f"sqlite:///{text}"
    if text.startswith("/"):
        return f"file://{text}"
    return f"file:{text}" if text.startswith("./") or text.endswith("/") else None


def spell_secret(secret: str) -> set[str]:
    """How a driver's message may write a secret."""
    plain = unquote(secret)
    escaped = {quote(plain), quote(plain, safe=""), quote_plus(plain), repr(plain)[1:-1]}
    return {secret, plain, *escaped}


def is_secret_option(option: str) -> bool:
    """Whether an option's name says that its value is not to be shown."""
    return any(word in option.lower() for word in SECRET_WORDS)


def is_secret_value(option: str, value: str) -> bool:
    """Whether a value is not to be shown.

    Neither is a key in the place of its variable's name, nor an address that has a password in it.
    """
    misplaced_key = option == "encrypt" and not VARIABLE_NAME.fullmatch(value)
    return is_secret_option(option) or misplaced_key or ADDRESS.search(value) is not None
