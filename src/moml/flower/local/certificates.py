"""A certificate and keys for trying TLS on this machine; a real server has its own."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moml.atomic import atomic_write

DAYS = datetime.timedelta(days=365)
NAMES = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]


def make_certificates(folder: Path) -> None:
    """Write `server.crt` with `server.key`, for this machine; it is its own authority, `ca.crt`."""
    key, now = ec.generate_private_key(ec.SECP384R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "moml, this machine only")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(NAMES), critical=False)
        .sign(key, hashes.SHA384())
        .public_bytes(form.Encoding.PEM)
    )
    folder.mkdir(mode=0o700, exist_ok=True)
    _write(folder / "ca.crt", certificate)
    _write(folder / "server.crt", certificate)
    _write(folder / "server.key", _private(key, form.PrivateFormat.PKCS8))


def make_key(path: Path) -> None:
    """Write a node's key, and its public half in PATH.pub, as `ssh-keygen -t ecdsa -b 384`."""
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    _write(path, _private(key, form.PrivateFormat.OpenSSH))
    _write(path.with_name(path.name + ".pub"), public + b"\n")


def _private(key: ec.EllipticCurvePrivateKey, kind: form.PrivateFormat) -> bytes:
    return key.private_bytes(form.Encoding.PEM, kind, form.NoEncryption())


def _write(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read."""
    with atomic_write(path, 0o600) as file:
        file.write(content)
