"""gateway, vision and decode as processes of their own, and a real Redis between the latter two."""

import fcntl
import functools
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from harness import MODEL, PROXIES

WAIT = 300  # seconds for anything that must come to pass
GROUPS, GROUP = 24, 500  # of ports, from 20000 on; C++ tests have those below (tests/support/loopback.cc)
# A machine under sanitizers may keep Redis, or who asks it, from the processor for longer than the product waits.
PATIENT_STORE = ("--embedding_store_timeout", "60s", "--embedding_store_connect_timeout", "60s")


_given = set()  # to this process, which may not have taken them all by now


@functools.cache
def _group():
    """A group of ports for this process, until its end; a file of it is locked meanwhile."""
    global _lock
    for number in range(GROUPS):
        try:
            _lock = open(pathlib.Path(tempfile.gettempdir()) / f"tessera-ports-{os.getuid()}-{number}", "w")
            fcntl.flock(_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return number
        except BlockingIOError:
            _lock.close()
    raise RuntimeError(f"{GROUPS} processes of tests have all ports")


def free_port():
    """A port that nobody has now, below those that the system hands out to clients and tests.

    Never one twice, and none that another process of tests may be given.
    """
    first = 20000 + _group() * GROUP
    while True:
        port = random.SystemRandom().randrange(first, first + GROUP)
        if len(_given) < 400 and port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port


def wait_until(condition, what, seconds=WAIT):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds} s in vain: {what}")


class Process:
    """One process that can be killed, stopped and started again with the same command."""

    def __init__(self, name, command):
        self.name = name
        self.command = [str(part) for part in command]
        self.log = tempfile.NamedTemporaryFile(mode="w+", suffix=f".{name}.log")
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=subprocess.STDOUT,
                                        env={**os.environ, **PROXIES})

    def text(self):
        return pathlib.Path(self.log.name).read_text()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def cont(self):
        self.process.send_signal(signal.SIGCONT)

    def terminate(self, timeout=WAIT):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()
        self.log.close()


class Fleet:
    """One gateway, `vision` and `decode` replicas, one Redis. A context manager.

    `flags` are of vision and decode, `redis_tls` is what redis-server is told of certificates: with
    it, it speaks nothing but TLS. `store_flags` suit a Redis that is killed, which refuses at once, but is not
    stopped. When it is made, the gateway has seen all replicas, and they Redis.
    """

    def __init__(self, vision=1, decode=1, flags=(), gateway_flags=(), vision_flags=(), decode_flags=(), redis_tls=(),
                 store_flags=PATIENT_STORE):
        self.folder = tempfile.mkdtemp(prefix="tessera-fleet-")
        self.processes = []
        try:
            self._start_redis(list(redis_tls))
            flags = [*store_flags, *flags]
            self._start(vision, decode, [*flags, *vision_flags], list(gateway_flags), [*flags, *decode_flags])
        except BaseException:
            self.close()
            raise

    def _start_redis(self, tls):
        self.redis_port = free_port()
        port = ["--port", 0, "--tls-port", self.redis_port, *tls] if tls else ["--port", self.redis_port]
        self.redis = self._add("redis", [
            shutil.which("redis-server") or "redis-server", *port,
            "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", self.folder])
        self.store = f"{'rediss' if tls else 'redis'}://127.0.0.1:{self.redis_port}/0"

    def _start(self, vision, decode, vision_flags, gateway_flags, decode_flags):
        store = ["--embedding_store", self.store]
        self.vision, self.decode = [], []
        self.ops = {}
        for _ in range(vision):
            self.vision.append(self._service("VISION_BINARY", len(self.vision), store + vision_flags))
        origins = ",".join(p.address for p in self.vision)
        for _ in range(decode):
            self.decode.append(self._service(
                "DECODE_BINARY", len(self.decode), [*store, "--vision_origins", origins, *decode_flags]))
        self.http_address = f"127.0.0.1:{free_port()}"
        self.gateway = self._service("GATEWAY_BINARY", 0, [
            "--vision_addresses", origins,
            "--decode_addresses", ",".join(p.address for p in self.decode),
            "--http_address", self.http_address, *gateway_flags], model=False)
        self.address = self.gateway.address
        self.await_ready(*self.vision, *self.decode, self.gateway)
        for service in ("vision", "decode"):  # a gateway is ready as soon as it has one of each
            for process in getattr(self, service):
                self.await_up(service, process)

    def _add(self, name, command):
        process = Process(name, command)
        self.processes.append(process)
        return process

    def _service(self, binary, number, flags, model=True):
        port, ops = free_port(), free_port()
        name = f"{binary.removesuffix('_BINARY').lower()}{number}"
        process = self._add(name, [
            os.environ[binary], "--grpc_address", f"127.0.0.1:{port}",
            "--ops_address", f"127.0.0.1:{ops}", *(["--model", MODEL] if model else []), *flags])
        process.address = f"127.0.0.1:{port}"
        process.ops = f"http://127.0.0.1:{ops}"
        return process

    def await_ready(self, *processes):
        for process in processes:
            def ready():
                if process.process.poll() is not None:
                    raise AssertionError(f"{process.name} ended:\n{process.text()}")
                return status(process, "/readyz") == 200
            wait_until(ready, f"{process.name} is ready:\n{process.text()}")

    def await_up(self, service, process):
        """Until the gateway has heard of it, and it of Redis, without which it is ready, too."""
        wait_until(lambda: state(self.gateway)["gateway"][service][process.address]["up"], f"{process.name} is up")
        if self.redis.process.poll() is None:
            wait_until(lambda: has_store(process), f"{process.name} has its store")

    def await_down(self, service, process):
        wait_until(lambda: not state(self.gateway)["gateway"][service][process.address]["up"],
                   f"{process.name} is down")

    def restart(self, service, process):
        process.kill()
        self.await_down(service, process)
        process.start()
        self.await_up(service, process)

    def close(self):
        for process in reversed(self.processes):
            process.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def status(process, path):
    """The status of a page of its operations port; None while nobody answers."""
    try:
        with urllib.request.urlopen(process.ops + path, timeout=5) as page:
            return page.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def has_store(process):
    with urllib.request.urlopen(process.ops + "/metrics", timeout=WAIT) as page:
        return any(line.startswith("tessera_embedding_cache_up{") and line.endswith(" 1") and 'tier="store"' in line
                   for line in page.read().decode().splitlines())


def state(process):
    import json
    with urllib.request.urlopen(process.ops + "/debug/state", timeout=WAIT) as page:
        return json.load(page)
