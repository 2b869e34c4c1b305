"""Key files are read, written and validated."""

from __future__ import annotations

import time

import pytest
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from holdfast.documents.signing import KeyFileError, PublicKey, SigningKey, load_trusted_keys
from support.signing_keys import KEY, OTHER, PRIVATE, PUBLIC


def test_a_key_written_to_a_file_is_read_back(tmp_path):
    key = SigningKey.generate("release")
    assert repr(key) == f"<SigningKey {key.key_id}>"
    for passphrase in (None, "open sesame", b"\xff"):
        pem = key.to_pem(passphrase=passphrase)
        assert (b"ENCRYPTED" in pem) == (passphrase is not None)
        assert SigningKey.from_pem(pem, passphrase=passphrase).public == key.public
    assert SigningKey.from_pem(PRIVATE, passphrase="not needed").public == KEY.public
    assert KEY.public.to_pem() == PUBLIC
    assert PublicKey.from_pem(PUBLIC) == KEY.public
    (tmp_path / "rfc.pub").write_bytes(PUBLIC)
    assert PublicKey.from_file(tmp_path / "rfc.pub").name == "rfc"


def test_the_id_of_a_key_is_the_hash_of_its_der_encoding():
    # openssl pkey -pubin -in rfc.pub -outform DER | sha256sum
    expected = "a1e9156054e04fac899ae9f275132cdc07a5dbc4ea2c2ad3a1ffc6e0d253681f"
    assert KEY.key_id == KEY.public.key_id == f"sha256:{expected}"


def test_trusted_keys_are_loaded_from_files_and_directories(tmp_path):
    (tmp_path / "many.pem").write_bytes(b"# ours\n" + PUBLIC + b"\n" + OTHER.public.to_pem())
    (tmp_path / "b.pub").write_bytes(PUBLIC)
    (tmp_path / "notes.txt").write_text("no key")
    assert load_trusted_keys(tmp_path / "many.pem") == [KEY.public, OTHER.public]
    assert [key.name for key in load_trusted_keys(tmp_path, str(tmp_path / "many.pem"))] == [
        "b",
        "many",
        "many",
    ]
    with pytest.raises(KeyFileError, match="has 2 keys; expected one"):
        PublicKey.from_file(tmp_path / "many.pem")
    (tmp_path / "empty").mkdir()
    with pytest.raises(KeyFileError, match=r"has no \*.pub file"):
        load_trusted_keys(tmp_path / "empty")


def pem(key, form=forms.PrivateFormat.PKCS8):
    return key.private_bytes(forms.Encoding.PEM, form, forms.NoEncryption())


CURVE = ec.generate_private_key(ec.SECP256R1())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            pem(rsa.generate_private_key(65537, 1024)),
            "unsupported key type RSAPrivateKey in {path}",
        ),
        (pem(CURVE), "unsupported key type E"),
        (pem(CURVE, forms.PrivateFormat.TraditionalOpenSSL), "unsupported key type EC PRIVATE"),
        (pem(KEY._key, forms.PrivateFormat.OpenSSH), "unsupported key type OPENSSH PRIVATE KEY"),
        (PUBLIC, "{path} is a public key; signing needs the private key"),
        (PRIVATE.replace(b"MC4C", b"AAAA"), "is not a valid key"),
        (OTHER.to_pem(passphrase="x"), "is encrypted and needs a passphrase"),
        (b"", "is not a key in PEM"),
        (b"\xff" * (1 << 20) + b"\n", "has more than 1,048,576 bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_that_is_not_a_private_key_is_rejected(tmp_path, data, words):
    path = tmp_path / "a.key"
    path.write_bytes(data)
    path.chmod(0o600)
    with pytest.raises(KeyFileError) as refused:
        SigningKey.from_file(path)
    assert words.format(path=path) in str(refused.value)
    assert str(path) in str(refused.value)


def test_files_that_are_not_public_keys_are_rejected(tmp_path):
    curve = CURVE.public_key().public_bytes(
        forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo
    )
    for data, words in (
        (PRIVATE, "is a private key; use the public key"),
        (curve, "unsupported key type"),
        (PUBLIC + curve, "unsupported key type"),
        (PUBLIC.replace(b"PUBLIC KEY", b"CERTIFICATE"), "unsupported key type CERTIFICATE"),
        (PUBLIC.replace(b"MCow", b"AAAA"), "is not a valid key"),
        (b"ssh-ed25519 AAAA", "is not a key in PEM"),
    ):
        (tmp_path / "a.pub").write_bytes(data)
        with pytest.raises(KeyFileError, match=words):
            load_trusted_keys(tmp_path / "a.pub")
    with pytest.raises(KeyFileError, match="cannot read key file .*: No such file"):
        load_trusted_keys(tmp_path / "none.pub")
    with pytest.raises(KeyFileError, match="cannot read key file .*: File name too long"):
        load_trusted_keys("x" * 300)
    with pytest.raises(KeyFileError, match="must have 32 bytes"):
        PublicKey(b"short")
    with pytest.raises(KeyFileError, match="the passphrase is wrong"):
        SigningKey.from_pem(OTHER.to_pem(passphrase="x"), passphrase="y")


def test_an_empty_path_is_not_the_current_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stray.pub").write_bytes(PUBLIC)
    assert load_trusted_keys(".") == [KEY.public]
    for read in (load_trusted_keys, PublicKey.from_file, SigningKey.from_file):
        with pytest.raises(KeyFileError, match="path of a key is empty"):
            read("")


def test_pem_blocks_without_an_end_are_rejected_in_linear_time():
    begin = b"-----BEGIN PUBLIC KEY-----\n"
    cut = PUBLIC[: PUBLIC.index(b"-----END")]
    started = time.process_time()
    for data in (
        begin * 38_000,
        b"".join(begin.replace(b"KEY", b"%d" % number) for number in range(35_000)),
        PUBLIC + cut,
        cut + PUBLIC,
        cut + PRIVATE,
        cut + b"-----END PRIVATE KEY-----",
    ):
        with pytest.raises(KeyFileError, match="a PEM block has no end"):
            PublicKey.from_pem(data)
    assert time.process_time() - started < 1
    edges = b"-----END PUBLIC KEY-----" + PUBLIC.replace(b"\n", b"\r\n")
    assert PublicKey.from_pem(b"\xef\xbb\xbf" + edges) == KEY.public


def test_errors_do_not_show_the_passphrase():
    locked = KEY.to_pem(passphrase=b"x" * 1023)
    assert SigningKey.from_pem(locked, passphrase="x" * 1023).public == KEY.public
    for use in (
        lambda: KEY.to_pem(passphrase="\udcf6" + "q" * 2000),
        lambda: KEY.to_pem(passphrase="q" * 1024),
        lambda: SigningKey.from_pem(locked, passphrase="\udcf6q"),
        lambda: SigningKey.from_pem(locked, passphrase="q" * 5000),
    ):
        with pytest.raises(KeyFileError, match="passphrase") as refused:
            use()
        assert "q" not in str(refused.value)
        assert "udcf6" not in str(refused.value)


def test_a_private_key_readable_by_others_logs_a_warning(tmp_path, caplog):
    path = tmp_path / "a.key"
    path.write_bytes(PRIVATE)
    path.chmod(0o600)
    SigningKey.from_file(path)
    assert caplog.messages == []
    path.chmod(0o644)
    assert SigningKey.from_file(path).public.name == "a"
    assert caplog.messages == [
        f"private key {path} is readable by other users (mode 644); run chmod 600 {path}"
    ]
