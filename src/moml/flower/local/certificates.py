"""Certificates and keys for trying TLS on this machine; a real server has its own."""

import datetime
import ipaddress
import os
from pathlib import Path
from typing import Any

DAYS = 365


def make_certificates(folder: Path) -> None:
    """An authority `ca.crt`, and `server.crt` with `server.key` signed by it, for this machine.

    The authority's own key is not kept: nothing else can ever be signed by it.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    authority, server = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    usage = {
        name: False
        for name in (
            "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
            "key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
        )
    }  # fmt: skip
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    known = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    signed_by = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known)
    ca = _certificate("moml, this machine only", authority.public_key())
    ca = ca.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    ca = ca.add_extension(x509.KeyUsage(**usage | {"key_cert_sign": True}), critical=True)
    ca = ca.add_extension(known, critical=False)
    own = _certificate("localhost", server.public_key())
    own = own.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    own = own.add_extension(x509.KeyUsage(**usage | {"digital_signature": True}), critical=True)
    own = own.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
    own = own.add_extension(x509.SubjectAlternativeName(names), critical=False)
    own = own.add_extension(signed_by, critical=False)
    folder.mkdir(mode=0o700, exist_ok=True)
    _write(folder / "ca.crt", _signed(ca, authority))
    _write(folder / "server.crt", _signed(own, authority))
    _write(folder / "server.key", _pem(server))


def make_key(path: Path) -> None:
    """A node's key, and its public half in PATH.pub, as `ssh-keygen -t ecdsa -b 384` makes them."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    form = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    _write(path, private)
    _write(path.with_name(path.name + ".pub"), key.public_key().public_bytes(*form) + b"\n")


def _certificate(name: str, key: Any) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    title = lambda text: x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(title(name)).public_key(key)
    builder = builder.issuer_name(title("moml, this machine only"))
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(minutes=5))
    return builder.not_valid_after(now + datetime.timedelta(days=DAYS))


def _signed(builder: Any, authority: Any) -> bytes:
    from cryptography.hazmat.primitives import hashes, serialization

    return builder.sign(authority, hashes.SHA384()).public_bytes(serialization.Encoding.PEM)


def _pem(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(path: Path, content: bytes) -> None:
    """A file that only its owner may read, from its first byte on."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
