"""The text of every scalar that neither msgpack nor JSON has: dates, decimals, long integers."""

from __future__ import annotations

import datetime as dt
import uuid
import zoneinfo
from decimal import Decimal

from msgspec.msgpack import Ext

from holdfast.values.extensions import (
    DATE,
    DATETIME,
    DECIMAL,
    INT,
    TIME,
    TIMEDELTA,
    UUID,
)


def scalar_extension(value: object) -> Ext | None:
    """The extension type of a scalar that has one; its payload is the text that JSON shows too."""
    if isinstance(value, dt.datetime):
        return Ext(DATETIME, _datetime_text(value).encode())
    if isinstance(value, dt.date):
        return Ext(DATE, dt.date(value.year, value.month, value.day).isoformat().encode())
    if isinstance(value, dt.time):
        plain = dt.time(value.hour, value.minute, value.second, value.microsecond, value.tzinfo)
        return Ext(TIME, (plain.isoformat() + _suffix(value.tzinfo, value.fold)).encode())
    if isinstance(value, dt.timedelta):
        return Ext(TIMEDELTA, f"{value.days},{value.seconds},{value.microseconds}".encode())
    if isinstance(value, uuid.UUID):
        return Ext(UUID, str(uuid.UUID(int=value.int)).encode())
    if isinstance(value, Decimal):
        return Ext(DECIMAL, str(Decimal(value)).encode())
    return None


def read_scalar(code: int, text: str) -> object:
    """The scalar that the payload of an extension type, or of a tag, says."""
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
        clock, zone, fold = _without_suffix(text)
        time = dt.time.fromisoformat(clock).replace(fold=fold)
        return time if zone is None else time.replace(tzinfo=zone)
    days, seconds, microseconds = text.split(",")
    return dt.timedelta(int(days), int(seconds), int(microseconds))


def int_extension(value: int) -> Ext:
    """An integer that msgpack has no room for."""
    # Python refuses to turn very long ints into decimal (it takes quadratic time), not into hex.
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


def _suffix(zone: dt.tzinfo | None, fold: int) -> str:
    """What ISO 8601 cannot say, as RFC 9557 writes it: ``[Europe/Berlin]``, ``[_fold=1]``."""
    name = f"[{zone.key}]" if isinstance(zone, zoneinfo.ZoneInfo) and zone.key else ""
    return name + ("[_fold=1]" if fold else "")


def _without_suffix(text: str) -> tuple[str, zoneinfo.ZoneInfo | None, int]:
    fold = 1 if text.endswith("[_fold=1]") else 0
    text = text.removesuffix("[_fold=1]")
    if not text.endswith("]"):
        return text, None, fold
    clock, _, name = text[:-1].partition("[")
    # Looked up among the zones that this machine has: a name from data never becomes a path.
    return clock, zoneinfo.ZoneInfo(name) if name in _zones() else None, fold


_zones_found: set[str] = set()


def _zones() -> set[str]:
    if not _zones_found:
        _zones_found.update(zoneinfo.available_timezones())
    return _zones_found


def _read_datetime(text: str) -> dt.datetime:
    clock, zone, fold = _without_suffix(text)
    moment = dt.datetime.fromisoformat(clock).replace(fold=fold)
    if zone is None:
        return moment
    there = moment.replace(tzinfo=zone)
    if there.utcoffset() == moment.utcoffset():
        return there
    # The zone's rules differ on this machine: the moment itself is what must not change.
    return moment
