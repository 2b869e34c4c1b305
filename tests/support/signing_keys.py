"""A key that everybody knows, another one, and who checks with them."""

from __future__ import annotations

import pytest

from holdfast.documents.signing import SignatureError, SigningKey, verify_signature

# The example of RFC 8410, section 10: everybody knows this private key.
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


def refuses(document, *words, trusted=TRUSTED):
    """Check that a document is not believed, and that it is said why."""
    with pytest.raises(SignatureError) as refused:
        verify_signature(document, trusted)
    for word in words:
        assert word in str(refused.value), refused.value
