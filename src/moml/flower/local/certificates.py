"""Certificates and keys for trying TLS on this machine; a real server has its own."""

import datetime
import ipaddress
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAYS = 365
AUTHORITY = "moml, this machine only"
OTHER_USES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
    "key_agreement", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip


def make_certificates(folder: Path) -> None:
    """Write an authority `ca.crt`, and `server.crt` with `server.key`, for this machine.

    The authority's own key is not kept: it never signs anything else.
    """
    ca, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    key_id = x509.SubjectKeyIdentifier.from_public_key(ca.public_key())
    signed_by = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(key_id)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    usage = x509.KeyUsage(key_cert_sign=True, **dict.fromkeys(OTHER_USES, False))
    of_ca = [x509.BasicConstraints(ca=True, path_length=0), usage, key_id]
    of_server = [
        x509.BasicConstraints(ca=False, path_length=None),
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
        x509.SubjectAlternativeName(names),
        signed_by,
    ]
    folder.mkdir(mode=0o700, exist_ok=True)
    _write(folder / "ca.crt", _certificate(AUTHORITY, ca, ca, of_ca))
    _write(folder / "server.crt", _certificate("localhost", server, ca, of_server))
    _write(folder / "server.key", _private(server, form.PrivateFormat.PKCS8))


def make_key(path: Path) -> None:
    """Write a node's key, and its public half in PATH.pub, as `ssh-keygen -t ecdsa -b 384`."""
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    _write(path, _private(key, form.PrivateFormat.OpenSSH))
    _write(path.with_name(path.name + ".pub"), public + b"\n")


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    authority: ec.EllipticCurvePrivateKey,
    extensions: list[x509.ExtensionType],
) -> bytes:
    title = lambda text: x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = x509.CertificateBuilder(
        title(AUTHORITY),
        title(name),
        key.public_key(),
        x509.random_serial_number(),
        now - datetime.timedelta(minutes=5),
        now + datetime.timedelta(days=DAYS),
    )
    for extension in extensions:
        critical = isinstance(extension, x509.BasicConstraints | x509.KeyUsage)
        certificate = certificate.add_extension(extension, critical)
    return certificate.sign(authority, hashes.SHA384()).public_bytes(form.Encoding.PEM)


def _private(key: ec.EllipticCurvePrivateKey, kind: form.PrivateFormat) -> bytes:
    return key.private_bytes(form.Encoding.PEM, kind, form.NoEncryption())


def _write(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, from its first byte on."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
