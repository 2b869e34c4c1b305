"""What goes wrong with NATS, in words: what happened, where, and the way out."""

from __future__ import annotations

import ssl

from nats import errors
from nats.js import api
from nats.js import errors as js_errors

from holdfast.errors import StateStoreError

NO_JETSTREAM = (10039, 10076)
FULL = (10002, 10023, 10047, 10077)
GONE = 10059


class ConnectionLostError(errors.Error):
    """The connection ended while an answer was awaited."""


class PermissionDeniedError(errors.Error):
    """The user has no right to a subject."""


def explain_error(error: Exception, bucket: str, place: str) -> StateStoreError:
    """What an error of nats-py means to the caller of a store."""
    reason = str(error) or type(error).__name__
    match error:
        case ConnectionLostError():
            return connection_error(reason, place, unknown=True)
        case errors.SecureConnWantedError():
            text = (
                f"{place} does not require TLS: configure the server so, "
                "or write nats:// in place of tls://"
            )
        case ssl.SSLError():
            text = (
                f"no secure connection to {place} ({reason}): see its certificate; "
                "the variable SSL_CERT_FILE names a file of others to be trusted"
            )
        case PermissionDeniedError():
            text = (
                f"the user of {place} has no right to publish to {reason}, or to subscribe to "
                f"_INBOX.>: grant it. Somebody who may can make the bucket {bucket} first"
            )
        case errors.MaxPayloadError():
            text = (
                f"{place} takes no message that is long enough for the key's name: "
                "shorten it, or raise the server's max_payload"
            )
        case js_errors.APIError(code=int()):
            return explain_api_error(error, bucket, place)
        case js_errors.APIError() | js_errors.NoStreamResponseError():
            return StateStoreError(
                f"nobody answers for the bucket {bucket} of {place}: JetStream is not enabled "
                "(nats-server -js), the bucket was deleted, or it has no leader at present",
                transient=True,
            )
        case errors.Error() if "auth" in reason.lower():
            text = (
                f"{place} refuses the user and password, or the token, of the URL ({reason}): "
                "see whether they are right"
            )
        case _:
            # One that is closed already is sent nothing.
            sent = not isinstance(error, errors.ConnectionClosedError)
            return connection_error(reason, place, unknown=sent)
    return StateStoreError(text)


def explain_api_error(error: js_errors.APIError, bucket: str, place: str) -> StateStoreError:
    """What a refusal by JetStream means."""
    said = f"{error.description} ({error.err_code})"
    if error.err_code in NO_JETSTREAM:
        return StateStoreError(
            f"{place} has no JetStream for this user ({said}): start the server with -js, "
            "or enable JetStream for the account"
        )
    if error.err_code in FULL:
        return StateStoreError(
            f"{place} has no room left ({said}): delete something, or raise the limits of "
            "the bucket, the account or the server"
        )
    if error.err_code == GONE:
        return StateStoreError(
            f"the bucket {bucket} of {place} was deleted ({said}): restore it, or open the store "
            "again to begin with an empty one"
        )
    passing = isinstance(error, js_errors.ServiceUnavailableError)
    return StateStoreError(
        f"the bucket {bucket} of {place} cannot do this: {said}", transient=passing, unknown=passing
    )


def connection_error(reason: str, place: str, *, unknown: bool) -> StateStoreError:
    """The error for a connection that was never made, or is lost."""
    return StateStoreError(
        f"the connection to {place} failed ({reason}): see whether the server runs, "
        "and whether host, port and password are right",
        transient=True,
        unknown=unknown,
    )


def check_bucket_config(config: api.StreamConfig, bucket: str, place: str) -> None:
    """Refuse a bucket that somebody made in a way that loses what was acknowledged."""
    limited = max(config.max_bytes or 0, config.max_msgs or 0) > 0
    faults = {
        "is a plain stream and not one of keys and values": config.max_msgs_per_subject < 1,
        "keeps its data in memory": config.storage != api.StorageType.FILE,
        "lets its entries expire": bool(config.max_age),
        "drops entries when it is full": limited and config.discard != api.DiscardPolicy.NEW,
        "acknowledges what it has not written": getattr(config, "persist_mode", "") == "async",
    }
    for fault, present in faults.items():
        if present:
            raise StateStoreError(
                f"the bucket {bucket} of {place} {fault}, so that state would be lost: "
                "name another bucket, which is then made as it should be"
            )
