"""The text encoding of scalars that msgpack and JSON lack: dates, decimals, long integers."""

from __future__ import annotations

import datetime as dt
import re
import uuid
import zoneinfo
from decimal import Decimal
from typing import Any, Final

from msgspec.msgpack import Ext

from holdfast.errors import InvalidDocumentError, short_repr
from holdfast.values.extensions import (
    DATE,
    DATETIME,
    DECIMAL,
    INT,
    TIME,
    TIMEDELTA,
    UUID,
)

_ZONE: Final = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")


def encode_scalar(value: Any, kind: type) -> Ext | None:
    """Return a scalar as an extension type, whose payload is also its text in JSON, or None."""
    if issubclass(kind, dt.datetime):
        return Ext(DATETIME, _datetime_text(value).encode())
    if issubclass(kind, dt.date):
        return Ext(DATE, dt.date(value.year, value.month, value.day).isoformat().encode())
    if issubclass(kind, dt.time):
        plain = dt.time(value.hour, value.minute, value.second, value.microsecond, value.tzinfo)
        return Ext(TIME, (plain.isoformat() + _suffix(value.tzinfo, value.fold)).encode())
    if issubclass(kind, dt.timedelta):
        return Ext(TIMEDELTA, f"{value.days},{value.seconds},{value.microseconds}".encode())
    if issubclass(kind, uuid.UUID):
        return Ext(UUID, str(uuid.UUID(int=value.int)).encode())
    if issubclass(kind, Decimal):
        # The decimal context of the thread decides between E and e; stored data always has E.
        return Ext(DECIMAL, str(Decimal(value)).replace("e", "E").encode())
    return None


def decode_scalar(code: int, text: str) -> object:
    """Decode a scalar from the payload of an extension type or a tag."""
    if code == INT:
        return int(text, 0)
    if code == DECIMAL:
        return Decimal(text)
    if code == UUID:
        return uuid.UUID(text)
    if code == DATETIME:
        return _read_datetime(text)
    if code == DATE:
        return dt.date.fromisoformat(text)
    if code == TIME:
        return _read_time(text)
    days, seconds, microseconds = text.split(",")
    return dt.timedelta(int(days), int(seconds), int(microseconds))


def encode_int(value: int) -> Ext:
    """Return an integer beyond 64 bits as an extension type."""
    # Python limits the conversion of very long ints to decimal, not to hexadecimal.
    return Ext(INT, (str(value) if value.bit_length() <= 2048 else hex(value)).encode())


def _datetime_text(value: dt.datetime) -> str:
    plain = dt.datetime(
        value.year,
        value.month,
        value.day,
        value.hour,
        value.minute,
        value.second,
        value.microsecond,
        value.tzinfo,
        fold=value.fold,
    )
    return plain.isoformat() + _suffix(value.tzinfo, value.fold)


def _suffix(zone: object, fold: int) -> str:
    """Return the RFC 9557 suffix of a time: ``[Europe/Berlin]``, ``[_fold=1]``."""
    key: object = getattr(zone, "key", None) if isinstance(zone, zoneinfo.ZoneInfo) else None
    name = f"[{key}]" if isinstance(key, str) and _ZONE.fullmatch(key) else ""
    return name + ("[_fold=1]" if fold else "")


def _without_suffix(text: str) -> tuple[str, str, int]:
    """Return the ISO 8601 part of a time, the name of its zone or "", and the fold."""
    fold = 1 if text.endswith("[_fold=1]") else 0
    text = text.removesuffix("[_fold=1]")
    if not text.endswith("]"):
        return text, "", fold
    clock, _, name = text[:-1].partition("[")
    return clock, name, fold


def _zone(name: str) -> zoneinfo.ZoneInfo | None:
    # ZoneInfo reads files: never pass it a name that could be another path.
    if not _ZONE.fullmatch(name):
        return None
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _read_datetime(text: str) -> dt.datetime:
    clock, name, fold = _without_suffix(text)
    moment = dt.datetime.fromisoformat(clock).replace(fold=fold)
    zone = _zone(name)
    if zone is not None:
        there = moment.replace(tzinfo=zone)
        if there.utcoffset() == moment.utcoffset():
            return there
    # The zone is unknown here, or its rules differ: keep the instant.
    return moment


def _read_time(text: str) -> dt.time:
    clock, name, fold = _without_suffix(text)
    time = dt.time.fromisoformat(clock).replace(fold=fold)
    if not name:
        return time
    zone = _zone(name)
    if zone is None:
        raise InvalidDocumentError(
            f"unknown time zone {short_repr(name)}; install the tzdata package"
        )
    return time.replace(tzinfo=zone)
