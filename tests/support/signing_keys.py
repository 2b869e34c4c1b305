"""Signing keys for tests."""

from __future__ import annotations

import pytest

from holdfast.documents.signing import SignatureError, SigningKey, verify_signature

# The example key of RFC 8410, section 10.
PRIVATE = b"""-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC
-----END PRIVATE KEY-----
"""
PUBLIC = b"""-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=
-----END PUBLIC KEY-----
"""
KEY = SigningKey.from_pem(PRIVATE, name="rfc")
OTHER = SigningKey.generate("other")
TRUSTED = [KEY.public]


def check_rejected(document, *words, trusted=TRUSTED):
    """Check that verifying a document fails with these words."""
    with pytest.raises(SignatureError) as refused:
        verify_signature(document, trusted)
    for word in words:
        assert word in str(refused.value), refused.value
