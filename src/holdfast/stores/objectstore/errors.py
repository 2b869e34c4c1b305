"""What the errors of the object store client mean.

obstore has a class for a few outcomes. For the rest, such as the HTTP status or a missing bucket,
it gives nothing but text.
"""

from __future__ import annotations

import re

from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

from holdfast.errors import StateStoreError

CREDENTIALS = {
    "s3": "access_key_id and secret_access_key in the URL, or AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY in the environment",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT in the environment",
    "az": "AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, or AZURE_CLIENT_ID, "
    "AZURE_CLIENT_SECRET and AZURE_TENANT_ID in the environment",
}
NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound|bucket does not exist")
STATUS = re.compile("status code: ([0-9]+)")
# Per object, in a response that succeeded as a whole.
ACCESS_DENIED = "code: AccessDenied"
# Without credentials, the client asks the metadata service of the cloud.
METADATA_SERVICE = re.compile(r"http://(169\.254\.|metadata\.google\.)")
RETRYABLE_STATUSES = (408, 409, 429)


def is_missing_bucket(error: Exception) -> bool:
    """Whether the bucket does not exist, rather than the object."""
    return NO_BUCKET.search(str(error)) is not None


def http_status(error: Exception) -> int:
    """Return the HTTP status of an error, or 0."""
    status = STATUS.search(str(error))
    return int(status[1]) if status else 0


def explain_error(error: Exception, scheme: str, display_url: str) -> StateStoreError:
    """Return what an error of the client means."""
    text = str(error)
    status = http_status(error)
    if is_missing_bucket(error):
        return StateStoreError(
            f"there is no bucket at {display_url}; create it, or fix its name in the URL"
        )
    if METADATA_SERVICE.search(text):
        return StateStoreError(
            f"no credentials found for {display_url}; set {CREDENTIALS[scheme]}, or anonymous=true "
            "in the URL",
            transient=True,
        )
    denied = isinstance(error, PermissionDeniedError | UnauthenticatedError)
    if denied or status in (401, 403) or ACCESS_DENIED in text:
        return StateStoreError(
            f"{display_url} denied access: {format_error(error)}; check {CREDENTIALS[scheme]}, "
            "their permission to list, read and write (and to delete, for sweep), and that the "
            "bucket exists"
        )
    if "kind: Connect" in text:
        return StateStoreError(
            f"{display_url} cannot be reached: {format_error(error)}; check that it is running, "
            "and the option endpoint of the URL",
            transient=True,
        )
    if "kind: Builder" in text or (300 <= status < 500 and status not in RETRYABLE_STATUSES):
        return StateStoreError(f"{display_url} rejected the request: {format_error(error)}")
    # A request that is rate limited was not applied.
    return StateStoreError(
        f"{display_url} failed: {format_error(error)}", transient=True, unknown=status != 429
    )


def format_error(error: Exception) -> str:
    """Return the message of the service or the client in one line."""
    text = str(error).partition("\n\nDebug source")[0]
    message = re.search("<Code>(.*?)</Code>.*?<Message>(.*?)</Message>", text, re.DOTALL)
    return f"{message[1]}, {message[2].rstrip('.')}" if message else " ".join(text.split())
