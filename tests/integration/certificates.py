"""Certificates for tests: an authority, and what it signs for 127.0.0.1."""

import os
import pathlib
import subprocess


class Authority:
    """`ca.pem` and `ca.key` in the folder, and NAME.pem with NAME.key of each that it has signed."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self._openssl("req", "-x509", *self._key("ca"), "-days", "2", "-subj", "/CN=authority", "-out", "ca.pem")
        (self.folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")

    def file(self, name):
        return self.folder / name

    def issue(self, name):
        self._openssl("req", *self._key(name), "-subj", f"/CN={name}", "-out", f"{name}.csr")
        self._openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                      "-CAcreateserial", "-days", "2", "-extfile", "names", "-out", f"{name}.pem")

    @staticmethod
    def _key(name):
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key")

    def _openssl(self, *args):
        subprocess.run(["openssl", *args], cwd=self.folder, check=True, capture_output=True)


def replace(path, content):
    """The file has this content from one moment to the next."""
    fresh = path.with_name(path.name + ".fresh")
    fresh.write_bytes(content)
    os.replace(fresh, path)
