"""A running `tessera serve` and generated client code, for the tests of this folder."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ["TESSERA_BINARY"]
SANITIZED = "SANITIZED_BUILD" in os.environ  # everything takes ten times as long
MODEL = ROOT / "models" / "shelf-vqa"
# What a developer's shell has set for the product is not for the tests' processes.
for name in [n for n in os.environ if n.startswith("TESSERA_") and n != "TESSERA_GOLDENS"]:
    del os.environ[name]
# Every server of these tests takes free ports beside the one that it is given, whoever starts it.
os.environ["TESSERA_OPS_ADDRESS"] = "127.0.0.1:0"
# Of every process under test that serves: no hop may go that way, where nobody answers.
PROXIES = {name: "http://127.0.0.1:1" for name in ("grpc_proxy", "https_proxy", "http_proxy")}
os.environ["TESSERA_HTTP_ADDRESS"] = "127.0.0.1:0"
# Requests end when the tests' patience does (PATIENCE), not before.
os.environ["TESSERA_DEADLINE_CAP"] = "1h"


def generate_stubs():
    """Python modules of protos/tessera/v1, importable as tessera.v1.*_pb2."""
    from grpc_tools import protoc

    global _stubs
    _stubs = tempfile.TemporaryDirectory(prefix="tessera-stubs-")  # removed when Python ends
    out = _stubs.name
    protos = ROOT / "protos"
    names = [f"tessera/v1/{n}.proto" for n in ("types", "gateway")]
    if protoc.main(["protoc", f"-I{protos}", f"--python_out={out}", f"--grpc_python_out={out}", *names]):
        raise RuntimeError("protoc failed")
    sys.path.insert(0, out)


class Server:
    """`tessera serve` on a free port; a context manager that kills what is left."""

    def __init__(self, *flags, model=MODEL, stderr=subprocess.STDOUT):
        # A file, not a pipe: nobody reads it meanwhile.
        self.log = tempfile.NamedTemporaryFile(mode="w+", suffix=".log")
        self.process = subprocess.Popen(
            [BINARY, "serve", "--model", str(model), "--grpc_address", "127.0.0.1:0", *flags],
            stdout=self.log, stderr=stderr, env={**os.environ, **PROXIES})
        try:
            self._await_ready()
            self.address = self._told("gRPC")
            self.ops_address = self._told("operations")
        except BaseException:
            self.__exit__()
            raise

    def _await_ready(self):
        import time
        for _ in range(6000):
            text = pathlib.Path(self.log.name).read_text()
            if "\nready" in text:
                return
            if self.process.poll() is not None:
                raise RuntimeError(f"serve ended with {self.process.returncode}:\n{text}")
            time.sleep(0.05)
        raise RuntimeError(f"serve is not ready:\n{text}")

    def _told(self, what):
        """The address that the start-up report gives for it."""
        return next((l.split()[1] for l in self.text().splitlines() if l.split()[:1] == [what]), None)

    def text(self):
        return pathlib.Path(self.log.name).read_text()

    def terminate(self, timeout=300):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log.close()


def run(*args, stdin=None, timeout=300, env=()):
    """The command with these arguments (and variables beside ours): exit code, stdout, stderr."""
    done = subprocess.run([BINARY, *map(str, args)], input=stdin, capture_output=True,
                          timeout=timeout, text=True, env={**os.environ, **dict(env)})
    return done.returncode, done.stdout, done.stderr
