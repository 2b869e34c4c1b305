"""What PostgreSQL's errors mean: by SQLSTATE in a session, by their words before there is one."""

from __future__ import annotations

import re

import psycopg

from holdfast.errors import StateStoreError

# How a connection is refused: without a SQLSTATE.
REFUSALS = {
    r"password|authentication|pg_hba\.conf|role .* does not exist": "See the user name and the "
    "password of the URL, and pg_hba.conf of the server",
    r"database .* does not exist": "Make the database, or name another in the path of the URL",
    r"permission denied": "Grant the role CONNECT on the database",
    r"invalid (\S+ )?value|invalid port": "See the options of the URL: those that are not the "
    "store's own are libpq's",
    r"SSL|certificate": "See the options sslmode and sslrootcert of the URL",
}

# By SQLSTATE or its class. What the server has rolled back for sure is not unsettled.
PASSING = ("08", "25006", "25P03", "40", "53200", "53300", "53400", "55P03", "57")
UNSETTLED = ("08", "40003", "57P")
HINTS: dict[tuple[str, ...], str] = {
    ("22021", "22P05"): "Keys are any text: use a database with the encoding UTF8",
    ("25006",): "It takes no writes, as a standby does: name the primary",
    ("3F000",): "Make the schema that the option table of the URL names",
    ("40",): "Too many write the same keys at the same time",
    ("42501",): "Grant the role SELECT, INSERT, UPDATE and DELETE on TABLE and on TABLE_done",
    (
        "42703",
        "42809",
        "42P10",
    ): "TABLE or TABLE_done is not a table of Holdfast: name another with the option table of the "
    "URL",
    ("42P01",): "TABLE or TABLE_done was removed while in use: a store that is opened anew makes "
    "it",
    ("53100",): "The server's disk is full: make room there",
    ("53300",): "Use fewer connections (option pool of the URL), or a pooler",
    ("57014",): "See the server's statement_timeout",
}


def explain_error(place: str, table: str, error: Exception) -> StateStoreError:
    """What an error of the driver means in the middle of an operation."""
    code = getattr(error, "sqlstate", None) or ""
    if not code and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return StateStoreError(
            f"the connection to {place} got lost: {format_error(error)}",
            transient=True,
            unknown=True,
        )
    hints = (hint for codes, hint in HINTS.items() if code.startswith(codes))
    hint = next(hints, "").replace("TABLE", table)
    return StateStoreError(
        f"{place}: {format_error(error)}" + (f". {hint}" if hint else ""),
        transient=code.startswith(PASSING),
        unknown=code.startswith(UNSETTLED),
    )


def explain_connect_error(place: str, text: str) -> StateStoreError:
    """What it means that a connection cannot be made. Nothing was written then."""
    text = " ".join(text.split())
    for pattern, hint in REFUSALS.items():
        if re.search(pattern, text):
            return StateStoreError(f"{place} cannot be used: {text}. {hint}")
    return StateStoreError(
        f"{place} cannot be reached: {text}. See whether the server runs and listens there",
        transient=True,
    )


def format_error(error: Exception) -> str:
    """What the server or the driver says, in one line."""
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return " ".join((primary or str(error)).split()).rstrip(".")
