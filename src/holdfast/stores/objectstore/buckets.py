"""Three services as one: what opens a bucket that a URL names, and what their errors mean.

The client does not retry by itself: a retry that does not know of the first attempt would take its
success for somebody else's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from obstore.store import AzureStore, GCSStore, S3Store

from holdfast.errors import StateStoreError, short_repr
from holdfast.stores.urls import StoreURL

if TYPE_CHECKING:
    from obstore.store import (
        AzureConfig,
        ClientConfig,
        GCSConfig,
        RetryConfig,
        S3Config,
        S3Credential,
    )

Bucket = S3Store | GCSStore | AzureStore

LONGEST_ROOT = 200
ONCE: RetryConfig = {"max_retries": 0}
COMMON = ("timeout", "patience", "endpoint", "anonymous")
CREDENTIALS = {
    "s3": "access_key_id and secret_access_key in the URL, or AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY in the environment",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT in the environment",
    "az": "AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, or AZURE_CLIENT_ID, "
    "AZURE_CLIENT_SECRET and AZURE_TENANT_ID in the environment",
}
NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound|bucket does not exist")
# What a service says of the first bytes of an object that has none.
EMPTY = re.compile("status code: 416")
NO_RIGHT = "code: AccessDenied"  # of one object, in an answer that is no refusal
NO_CREDENTIALS = re.compile(r"http://(169\.254\.|metadata\.google\.)")


# ---- from a URL ------------------------------------------------------------------------------


def bucket_factory(url: StoreURL, timeout: float) -> Callable[[], Bucket]:
    """What opens the bucket of a URL, all of whose other options are taken already."""
    name = url.parts.netloc
    if not name or "@" in name or ":" in name:
        raise StateStoreError(
            f"the URL of a bucket is {url.scheme}://NAME or {url.scheme}://NAME/PREFIX: "
            "credentials and the address of the server are options"
        )
    # Where an endpoint is http, the URL or the environment says so.
    options: ClientConfig = {"allow_http": True, "timeout": timedelta(seconds=timeout)}
    opened = {"s3": s3_factory, "gs": gs_factory, "az": az_factory}[url.scheme]
    return opened(url, name, options)


def s3_factory(url: StoreURL, name: str, options: ClientConfig) -> Callable[[], Bucket]:
    """What opens a bucket of Amazon S3, or of a server that speaks its protocol."""
    config: S3Config = {}
    if endpoint := take_endpoint(url):
        config["aws_endpoint_url_s3"] = endpoint
    if region := url.take("region"):
        config["region"] = region
    if anonymous := url.take_flag("anonymous"):
        config["skip_signature"] = True
    key, secret = url.take("access_key_id"), url.take("secret_access_key")
    token = url.take("session_token")
    url.reject_unknown_options(
        (*COMMON, "region", "access_key_id", "secret_access_key", "session_token")
    )
    if anonymous and (key or secret or token):
        raise StateStoreError("the s3 URL is anonymous and has credentials: leave one of them out")
    if not (key and secret) and (key or secret or token):
        raise StateStoreError(
            "the s3 URL has a part of the credentials: give both access_key_id and "
            "secret_access_key"
        )
    if not (key and secret):
        return lambda: S3Store(name, config=config, client_options=options, retry_config=ONCE)
    # Not as parts of the configuration, which the environment's session token would join.
    given: S3Credential = {
        "access_key_id": key,
        "secret_access_key": secret,
        "token": token,
        "expires_at": None,
    }
    return lambda: S3Store(
        name,
        config=config,
        client_options=options,
        retry_config=ONCE,
        credential_provider=lambda: given,
    )


def gs_factory(url: StoreURL, name: str, options: ClientConfig) -> Callable[[], Bucket]:
    """What opens a bucket of Google Cloud Storage."""
    config: GCSConfig = {}
    if endpoint := take_endpoint(url):
        config["base_url"] = endpoint
    if url.take_flag("anonymous"):
        config["skip_signature"] = True
    url.reject_unknown_options(COMMON)
    return lambda: GCSStore(name, config=config, client_options=options, retry_config=ONCE)


def az_factory(url: StoreURL, name: str, options: ClientConfig) -> Callable[[], Bucket]:
    """What opens a container of Azure Blob Storage."""
    config: AzureConfig = {}
    if account := url.take("account"):
        config["account_name"] = account
    if endpoint := take_endpoint(url):
        config["endpoint"] = endpoint
    if url.take_flag("anonymous"):
        config["skip_signature"] = True
    url.reject_unknown_options((*COMMON, "account"))
    return lambda: AzureStore(name, config=config, client_options=options, retry_config=ONCE)


def take_endpoint(url: StoreURL) -> str | None:
    """The address of a server other than the service's own."""
    endpoint = url.take("endpoint")
    if endpoint is not None and not re.fullmatch(r"https?://[^/@]+(/.*)?", endpoint):
        raise StateStoreError(
            f"the option endpoint of the {url.scheme} URL is an address as http://127.0.0.1:8333"
        )
    return endpoint


def parse_root(url: StoreURL) -> str:
    """What the names of all objects begin with: nothing, or text that ends in a slash."""
    prefix = url.path.strip("/")
    if not prefix:
        return ""
    size = len(prefix.encode())
    if size > LONGEST_ROOT:
        raise StateStoreError(
            f"the prefix in the {url.scheme} URL has {size} bytes, and at most {LONGEST_ROOT} fit "
            "into the name of an object beside a key: take a shorter one"
        )
    if any(part in ("", ".", "..") for part in prefix.split("/")) or not prefix.isprintable():
        raise StateStoreError(
            f"the prefix {short_repr(prefix)} in the {url.scheme} URL has a part that is empty, . or "
            ".., or a character that is not printable: take another"
        )
    return prefix + "/"


# ---- errors ----------------------------------------------------------------------------------


def explain_error(error: Exception, scheme: str, place: str) -> StateStoreError:
    """What an error of the client means."""
    text = str(error)
    status = re.search("status code: ([0-9]+)", text)
    code = int(status[1]) if status else 0
    if NO_BUCKET.search(text):
        return StateStoreError(
            f"there is no bucket at {place}: create it, or mend its name in the URL"
        )
    if NO_CREDENTIALS.search(text):
        return StateStoreError(
            f"no credentials were found for {place}: give {CREDENTIALS[scheme]}, or anonymous=true "
            "in the URL",
            transient=True,
        )
    if code in (401, 403) or NO_RIGHT in text:
        return StateStoreError(
            f"{place} refused access: {format_error(error)}. See to {CREDENTIALS[scheme]}, to their rights "
            "to list, read and write, to delete where it sweeps, and that the bucket is there"
        )
    if "kind: Connect" in text:
        return StateStoreError(
            f"{place} cannot be reached: {format_error(error)}. See whether it runs, and to the option "
            "endpoint of the URL",
            transient=True,
        )
    if "kind: Builder" in text or (300 <= code < 500 and code not in (408, 409, 429)):
        return StateStoreError(f"{place} does not take the request: {format_error(error)}")
    # Whoever asks too often is turned away before anything is done.
    return StateStoreError(
        f"{place} failed: {format_error(error)}", transient=True, unknown=code != 429
    )


def format_error(error: Exception) -> str:
    """What the service or the client says, in one line."""
    text = str(error).partition("\n\nDebug source")[0]
    message = re.search("<Code>(.*?)</Code>.*?<Message>(.*?)</Message>", text, re.DOTALL)
    return f"{message[1]}, {message[2].rstrip('.')}" if message else " ".join(text.split())
