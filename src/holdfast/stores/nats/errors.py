"""What the errors of nats-py mean."""

from __future__ import annotations

import ssl

from nats import errors
from nats.js import api
from nats.js import errors as js_errors

from holdfast.errors import StateStoreError

NO_JETSTREAM = (10039, 10076)
FULL = (10002, 10023, 10047, 10077)
NO_STREAM = 10059


class ConnectionLostError(errors.Error):
    """The connection ended before a response arrived."""


class PermissionDeniedError(errors.Error):
    """The user may not use a subject."""


def explain_error(error: Exception, bucket: str, display_url: str) -> StateStoreError:
    """Classify an error of nats-py for the caller of a store."""
    reason = str(error) or type(error).__name__
    match error:
        case ConnectionLostError():
            return connection_error(reason, display_url, unknown=True)
        case errors.SecureConnWantedError():
            text = (
                f"{display_url} does not require TLS; configure the server to require it, or use "
                "nats:// instead of tls://"
            )
        case ssl.SSLError():
            text = (
                f"no secure connection to {display_url} ({reason}); check its certificate, or set "
                "SSL_CERT_FILE to a file of certificates to trust"
            )
        case PermissionDeniedError():
            text = (
                f"the user of {display_url} may not publish to {reason}, or not subscribe to "
                f"_INBOX.>; grant it, or create the bucket {bucket} with another user first"
            )
        case errors.MaxPayloadError():
            text = (
                f"{display_url} does not accept a message that is large enough for the key; "
                "shorten the key, or raise the server's max_payload"
            )
        case js_errors.APIError(code=int()):
            return explain_api_error(error, bucket, display_url)
        case js_errors.APIError() | js_errors.NoStreamResponseError():
            return StateStoreError(
                f"no response for the bucket {bucket} of {display_url}: JetStream is not enabled "
                "(nats-server -js), the bucket was deleted, or it has no leader at the moment",
                transient=True,
            )
        case _ if is_authorization_error(error):
            text = (
                f"{display_url} rejected the user and password, or the token ({reason}); check "
                "them in the URL"
            )
        case _:
            # Nothing is sent on a connection that is already closed.
            sent = not isinstance(error, errors.ConnectionClosedError)
            return connection_error(reason, display_url, unknown=sent)
    return StateStoreError(text)


def is_authorization_error(error: Exception) -> bool:
    """Return whether the server rejected the credentials."""
    if isinstance(error, errors.AuthorizationError | errors.InvalidUserCredentialsError):
        return True
    # While connecting, nats-py raises a plain Error with the server's text and no code.
    return isinstance(error, errors.Error) and "auth" in str(error).lower()


def explain_api_error(error: js_errors.APIError, bucket: str, display_url: str) -> StateStoreError:
    """Classify an error response of JetStream."""
    reason = f"{error.description} ({error.err_code})"
    if error.err_code in NO_JETSTREAM:
        return StateStoreError(
            f"{display_url} has no JetStream for this user: {reason}; start the server with -js, "
            "or enable JetStream for the account"
        )
    if error.err_code in FULL:
        return StateStoreError(
            f"{display_url} is full: {reason}; delete data, or raise the limits of the bucket, the "
            "account or the server"
        )
    if error.err_code == NO_STREAM:
        return StateStoreError(
            f"the bucket {bucket} of {display_url} was deleted: {reason}; restore it, or open the "
            "store again to start with an empty one"
        )
    transient = isinstance(error, js_errors.ServiceUnavailableError)
    return StateStoreError(
        f"the bucket {bucket} of {display_url} rejected the request: {reason}",
        transient=transient,
        unknown=transient,
    )


def connection_error(reason: str, display_url: str, *, unknown: bool) -> StateStoreError:
    """Return the error for a connection that failed or was lost."""
    return StateStoreError(
        f"the connection to {display_url} failed ({reason}); check that the server is running, and "
        "the host, port and password of the URL",
        transient=True,
        unknown=unknown,
    )


def check_bucket_config(config: api.StreamConfig, bucket: str, display_url: str) -> None:
    """Reject an existing bucket that could lose acknowledged writes.

    Raises:
        StateStoreError: The bucket's configuration is not safe.

    """
    limited = max(config.max_bytes or 0, config.max_msgs or 0) > 0
    problems = {
        "is not a key-value bucket but a plain stream": config.max_msgs_per_subject < 1,
        "stores its data in memory": config.storage != api.StorageType.FILE,
        "lets its entries expire": bool(config.max_age),
        "drops entries when it is full": limited and config.discard != api.DiscardPolicy.NEW,
        "acknowledges writes before it stores them": getattr(config, "persist_mode", "") == "async",
    }
    for problem, present in problems.items():
        if present:
            raise StateStoreError(
                f"the bucket {bucket} of {display_url} {problem}, so state could be lost; name "
                "another bucket, which is created with safe settings"
            )
