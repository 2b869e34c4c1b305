"""Find secrets by their names: ``password``, ``api_key``, ``access_token``.

The words are those of detect-secrets' keyword detector and some more. The end of a name decides, so
``secret_name`` and ``max_tokens`` do not match. The value must be possible as a secret, so
``"password": "required"`` and ``password = get_password()`` do not match either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

MARK = re.compile(r"\[redacted: [^\[\]\n]{1,60}\]")

# A name that ends in one of these holds a secret, even without a separator: PGPASSWORD.
GLUED = ("password", "passwd", "passphrase", "secret", "api_?key")
MORE = (
    *("access_?key", "encryption_?key", "signing_?key", "passcode", "passwort", "kennwort"),
    *("mot_de_passe", "secret_?key(?:_base)?", "master_?key", "app_?key", "shared_?key"),
)
ENDING = (
    r"(?:_(?:values?|plain|text|plaintext|raw|prod|production|dev|staging|live|old|new|hash|\d+))*"
)
# A name that ends in one of these holds a secret only if the value looks like one.
WEAK = re.compile(rf"(?:.*_)?(?:token|authorization|credentials?){ENDING}")
# The word before makes it something else: the next page, the end of a text.
OTHER_TOKENS = re.compile(
    r"(?:.*_)?(?:next|previous|prev|page|continuation|cont|resume|sync|start|begin|first|last|stop|"
    r"end|eos|bos|pad|unk|sep|cls|mask|special|max|min|each|per|by|nft|cancel|cancellation|"
    rf"stream|delta|prompt|completion|input|output|reasoning)_token{ENDING}"
)
# A name that contains one of these holds a secret only if the value is a token.
RELATED_NAME = re.compile(
    r"(?:.*_)?(?:secrets?|tokens?|passwords?|passwd|passphrase|pwd|credentials?|pat|apikey)(?:_.*)?"
    r"|.*_keys?(?:_(?:base|value|\d+))?"
)
# Names of properties of a secret, and of other keys and tokens.
ABOUT = re.compile(
    r".*_(?:names?|ids?|arns?|ur[il]s?|endpoint|paths?|files?|dir|types?|kinds?|counts?|length|len|"
    r"limits?|sizes?|expir\w*|ttl|at|on|date|time|timeout|age|policy|policies|fields?|labels?|hints?|"
    r"prompts?|versions?|alg|algorithm|headers?|prefix|suffix|format|index|usage|used|budget|min|max|"
    r"rules?|regex|pattern|error|message|status|state|scopes?|issuer|audience|provider|manager|store|"
    r"ref|reference|description|text|column|table|param\w*|vocab|logprobs?|ratio|rate|cost|price|"
    r"strategy|mode|owner|user|username|email|host|region|count\w*|position|offset|map|mapping)"
)
OTHER_KEYS = re.compile(
    r"(?:.*_)?(?:primary|foreign|public|pub|partition|sort|range|cache|dedupe|dedup|idempotency|group|"
    r"row|hash|object|s3|storage|bucket|redis|routing|lookup|map|dict|registry|shortcut|hot|arrow|"
    r"index|message|unique|natural|composite|join|lock|search|translation|i18n|event|tag|label|meta|"
    r"config|setting|state|memo|query|etag|answer|order|item|page|document|blob|file|column|field|"
    r"value|dictionary|json|data|record|entity|user|customer|session|thread|run|trace|span|node|"
    r"channel|checkpoint|parent|child|host|known|license_plate|site|publishable|recaptcha_site)_keys?"
)
QUESTIONS = re.compile(
    r"(?:is|has|no|show|hide|use|uses|forgot|forgotten|lost|reset|change|changed|requires?|needs?|"
    r"invalid|wrong|incorrect|missing|enter|your|verify|check|validate|hash|get|set)_.*"
)
PLACEHOLDERS = frozenset(
    re.findall(
        r"\S+",
        """
        none null nil undefined true false yes no on off str string text bytes any optional required
        password passwd token api_key apikey key hidden redacted removed masked secretstr unknown
        empty unset missing invalid valid expired enabled disabled private public include omit
        same-origin bearer basic oauth oauth2 jwt saml value tbd todo n/a wrong incorrect
        your_password your_api_key your-api-key your-api-key-here your_api_key_here your_token
        your-token
        """,
    )
)
TEMPLATE = re.compile(
    r"\{.*\}|<.*>|\$\{.*\}|\$\(.*\)|\$[A-Z_][A-Z0-9_]*|%[A-Z_]\w*%|x{3,}|X[X-]{2,}|\.+"
)
TYPES = re.compile(r"(?:\w*(?:[Ss]tr|String|Type|Token|Key|Field|Secret|Bytes)|Optional|Union)")

OPTION = re.compile(r"-{1,2}[A-Za-z][\w.-]*")
HEADER = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)+|authorization", re.IGNORECASE)

NEAR = 400
# The words as they occur in texts. Searching for each is many times faster than one pattern.
STEMS = (
    *("password", "passwort", "passwd", "passphrase", "passcode", "kennwort", "mot de passe"),
    *("mot_de_passe", "pwd", "secret", "token", "contrase", "credential", "authorization"),
)
BEFORE_KEY = (
    *("api", "auth", "service", "account", "db", "database", "priv", "private", "client"),
    *("access", "encryption", "signing", "secret", "master", "app", "shared"),
)
BEFORE_PASS = ("db", "database", "key")
SECRET_WORD = re.compile(
    rf"{'|'.join(STEMS)}|(?:{'|'.join(BEFORE_KEY)})[_\-. ]?key|[a-z0-9][_\-]key|[_\-]pat\b"
    rf"|(?:{'|'.join(BEFORE_PASS)})[_-]?pass",
    re.IGNORECASE,
)
LONGEST_NAME = 128
NAME_CHARS = re.compile(rf"[\w\-]{{0,{LONGEST_NAME}}}")

OPERATOR = re.compile(
    r"""(?P<close> \\{0,8}["'`]? \]? )
        (?P<op> [ \t]{0,4} (?: := | => | ={1,3} | !==? | : (?!//) ) [ \t]{0,4}
          | [ \t]+ (?:is|was|ist|es|est) [ \t]*:?[ \t]+
          | > | [ \t]+ )""",
    re.VERBOSE,
)
QUOTED = re.compile(
    r"""@? [frbuFRBU]{0,2} (?P<quote> \\{0,8}["'`] )
        (?P<value> (?: (?!(?P=quote)) (?:\\.|[^\n]) ){1,8192}? )
        (?P=quote)""",
    re.VERBOSE,
)
BARE = re.compile(r"[^\s\"'`,;&<>()\[\]{}|\\]{4,512}")
BETWEEN_TAGS = re.compile(r"[^<>\n]{1,512}(?=</)")
REFERENCE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
CONNECTION = re.compile(
    r"\b(?:host|server|dbname|database|data source)\s*=\s*[\w.\-]+", re.IGNORECASE
)


LETTER = re.compile(r"[^\W\d_]")
DIGIT = re.compile(r"\d")
SPACE = re.compile(r"\s")
LETTER_OR_DIGIT = re.compile(r"[^\W_]")
SIGN = re.compile(r"[\d!#$%^*~+@?]")
COOKIE_NAME = re.compile(r"(?:set-)?cookies?", re.IGNORECASE)
TOKEN = re.compile(
    r"(?=[^A-Za-z]{0,64}[A-Za-z])(?=\D{0,64}\d)[A-Za-z0-9+/=_.~!@#$%^&*()\[\]{}:;<>?,|-]{12,512}"
)
# A time, a UUID, an id with a prefix, words joined by dashes or dots, a path, a URL, a hash.
NOT_A_TOKEN = re.compile(
    r"\d{4}-\d\d-\d\d.*|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\w+://.*|[~.]?/.*|.*\.\w{1,4}"
    r"|[a-z]+(?:[_./:-][a-z]+)*[_./:-]?v?\d{0,10}|0x[0-9a-fA-F]+|arn:.*|[A-Z][A-Z_]*\d{0,3}"
    r"|[a-z0-9]+(?:[._:/-][a-z0-9]{1,10})+|sha\d+:.*"
)


class SecretNames:
    """Decides by its name whether a value is a secret; ``denylist`` has the library's words."""

    def __init__(self, denylist: Sequence[str]) -> None:
        words = "|".join((*denylist, *MORE))
        self._strong = re.compile(rf"(?:(?:.*_)?(?:{words})|.*(?:{'|'.join(GLUED)}))s?{ENDING}")

    def fit(self, name: str, value: str) -> bool:
        """Return whether a value with this name is a secret."""
        if len(name) > LONGEST_NAME or is_placeholder(value):
            return False
        if COOKIE_NAME.fullmatch(name):
            return "=" in value
        if not SECRET_WORD.search(name):
            return False
        plain = normalize_name(name)
        if QUESTIONS.fullmatch(plain):
            return False
        if self._strong.fullmatch(plain):
            # PWD is also the working directory.
            return not (plain.endswith("pwd") and value.startswith(("/", "~", "C:")))
        if WEAK.fullmatch(plain) and not OTHER_TOKENS.fullmatch(plain):
            return looks_random(value.split(" ", 1)[-1])
        return is_related_name(plain) and is_token(value)

    def hold_many(self, name: str) -> bool:
        """Return whether this is the name of a collection of secrets: ``secrets``, ``api_keys``."""
        if len(name) > LONGEST_NAME:
            return False
        plain = normalize_name(name)
        return plain.endswith("s") and bool(self._strong.fullmatch(plain))

    def fit_number(self, name: str) -> bool:
        """Return whether a number with this name is a secret: a password may be one."""
        if len(name) > LONGEST_NAME:
            return False
        return bool(re.fullmatch(r"(?:.*_)?(?:password|passwd|pwd|passcode)", normalize_name(name)))

    def tell_next(self, before: str, value: str, size: int) -> bool:
        """Return whether an item of a list is a secret because of the item before it.

        That is so after an option (``["--password", "…"]``), and in a pair after the name of a
        header. A pair may also be two names, so after a header it must look like a secret.
        """
        if OPTION.fullmatch(before):
            if value.startswith("-") or SPACE.search(value):
                return False  # another option, or a sentence
            return (not SECRET_WORD.search(value) or is_strong(value)) and self.fit(before, value)
        if size != 2 or not HEADER.fullmatch(before) or not is_strong(value):
            return False
        if value.lower().startswith("x-") or (
            SECRET_WORD.search(value) and HEADER.fullmatch(value)
        ):
            return False  # the name of another header
        return self.fit(before, value)

    def assigned(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the positions of secrets that follow a name, as in code, JSON or prose."""
        done = 0
        for first, last in find_name_words(text):
            if first < done:
                continue
            start = find_name_start(text, first)
            after = NAME_CHARS.match(text, last)
            end = done = (
                after.end() if after else last
            )  # no word of the same name is looked at again
            span = self._value_after(text, start, end)
            if span is not None:
                done = span[1]
                yield span

    def _value_after(self, text: str, start: int, end: int) -> tuple[int, int] | None:
        """Return the position of the value after a name, if it is a secret."""
        found = OPERATOR.match(text, end)
        if found is None:
            return None
        name, op = text[start:end].lstrip("-"), found["op"].strip()
        quoted = QUOTED.match(text, found.end())
        if quoted and op != ">":
            value = quoted["value"]
            is_label = " " in value and SECRET_WORD.search(value)
            if is_label or (not op and not is_strong(value)) or not self.fit(name, value):
                return None
            return quoted.span("value")
        if op == ">":
            inside = BETWEEN_TAGS.match(text, found.end())
            opened = start > 0 and text[start - 1] == "<"
            return inside.span() if inside and opened and self.fit(name, inside[0]) else None
        if op == ":" and text[start - 1 : start] == ":":
            return None  # a part of an ARN or a URN
        bare = BARE.match(text, found.end())
        if bare is None or op in ("==", "===", "!=", "!=="):
            return None
        value = bare[0] if op == "=" else bare[0].rstrip(".!?:")
        if not self.fit(name, value) or not self._bare_fits(text, start, found, value):
            return None
        return bare.start(), bare.start() + len(value)

    def _bare_fits(self, text: str, start: int, found: re.Match[str], value: str) -> bool:
        """Return whether an unquoted value is a secret, not code or a word of a sentence."""
        end = found.end() + len(value)
        if text[end : end + 1] in ("(", "[", "{") or REFERENCE.fullmatch(value):
            return False
        if SECRET_WORD.search(value) and value.isidentifier():
            return False
        op = found["op"]
        name = text[start : found.start()]
        if op.strip() == "":
            return name.startswith("--") and is_strong(value)
        if is_strong(value):
            return True
        if "=" in op:
            near = max(0, start - NEAR)
            before = text[max(near, text.rfind("\n", near, start) + 1) : start]
            connects = "(" not in before and CONNECTION.search(before) is not None
            return op == "=" and (name.isupper() or connects)
        if found["close"] and value.isdecimal():
            return True  # a number in JSON
        alone = len(value) >= 6 and is_whole_line(text, start, end)
        return ":" in op and alone and not TYPES.fullmatch(value)


def find_name_words(text: str) -> list[tuple[int, int]]:
    """Return the positions of words that are part of a telling name, in order."""
    lowered = text.lower()
    if len(lowered) != len(text):
        return [
            hit.span() for hit in SECRET_WORD.finditer(text)
        ]  # a letter without a single lower-case form
    stems = [stem for stem in STEMS if stem in lowered]
    found = [(at, at + len(stem)) for stem in stems for at in find_all(lowered, stem)]
    for word, before in (("key", BEFORE_KEY), ("pass", BEFORE_PASS)):
        for at in find_all(lowered, word):
            joined = word == "key" and lowered[max(0, at - 1) : at] in ("_", "-")
            if joined or lowered[max(0, at - 12) : at].rstrip("_-. ").endswith(before):
                found.append((at, at + len(word)))
    for at in find_all(lowered, "_pat"):
        if not lowered[at + 4 : at + 5].isalnum():
            found.append((at, at + 4))
    return sorted(found)


def find_all(text: str, word: str) -> Iterator[int]:
    """Yield the positions of a word."""
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + 1)


def is_whole_line(text: str, start: int, end: int) -> bool:
    """Return whether this is a whole line, or an item of a bulleted list."""
    near = text[max(0, start - NEAR) : start]
    before = near.rpartition("\n")[2] if "\n" in near or start <= NEAR else "…"
    after = text[end : end + NEAR].partition("\n")[0]
    return not before.strip(" \t-*>") and not after.strip()


def find_name_start(text: str, at: int) -> int:
    """Return the start of the name that a word is part of."""
    start = at
    while start > max(0, at - 64) and (text[start - 1].isalnum() or text[start - 1] in "_-"):
        start -= 1
    return start


def is_related_name(plain: str) -> bool:
    """Return whether a name is that of a secret, not of a property of one."""
    if not RELATED_NAME.fullmatch(plain) or ABOUT.fullmatch(plain) or OTHER_TOKENS.fullmatch(plain):
        return False
    return not OTHER_KEYS.fullmatch(plain)


def is_token(value: str) -> bool:
    """Return whether a value is one long word of letters and digits, not a name, path or time."""
    return bool(TOKEN.fullmatch(value)) and not NOT_A_TOKEN.fullmatch(value)


def normalize_name(name: str) -> str:
    """Return a name in snake case."""
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    words = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", words)
    return re.sub(r"[\W_]+", "_", words.lower()).strip("_")


def is_placeholder(value: str) -> bool:
    """Return whether a value is a placeholder for a secret."""
    plain = value.strip()
    return (
        plain.lower() in PLACEHOLDERS
        or not LETTER_OR_DIGIT.search(plain)
        or bool(TEMPLATE.fullmatch(plain) or MARK.fullmatch(plain))
    )


def is_strong(value: str) -> bool:
    """Return whether a value has digits or signs among its letters, unlike a word of a language."""
    if len(value) < 6 or not LETTER.search(value):
        return False
    return bool(SIGN.search(value, 0, len(value) - 1)) or value[-1].isdigit()


def looks_random(value: str) -> bool:
    """Return whether a value looks like a token: one long word with digits."""
    if len(value) < 8 or SPACE.search(value):
        return False
    if re.fullmatch(r"0x[0-9a-fA-F]+", value):
        return False
    return bool(DIGIT.search(value)) or (
        len(value) >= 20 and not (value.isalpha() and value.islower())
    )
