"""The soak: five processes are killed and stopped under 16 clients. `./dev soak [SECONDS] [SEED] [DECODE] [VISION]`."""

import itertools
import os
import pathlib
import random
import sys
import threading
import time
import urllib.request

import grpc

from client import PATIENCE, gateway_pb2_grpc
from fleet import Fleet, wait_until
from soak_clients import CAP, CLIENTS, GRACE, PICTURES, Case, Client, Quiet, QUESTIONS, Record, grpc_request, renewed

FAULTS = 20  # at least, where there are SECONDS for it
SECONDS_PER_FAULT = 6
SILENCE = 3.0  # --load_silence: a busy machine keeps a process from its processors for a second now and then
LONG_STOP = 2 * SILENCE  # below CAP: somebody else has answered by then
WARM = 200  # requests that end well before a reading: caches are full, heaps have found their size
GROWTH = 24 << 10  # kilobytes a process may grow between two quiet moments: heaps that find their size
FILES = 8  # open files more
SHARE, SHARE_OF_KIND = 1 / 2, 1 / 3  # of requests that must end well, faults or not: some 0.75 and 0.55 do
# What stays at 0 when nobody asks.
GAUGES = {"gateway": ("tessera_gateway_inflight_requests", "tessera_gateway_queued_requests"),
          "decode": ("tessera_decode_requests_running", "tessera_decode_requests_waiting"),
          "vision": ("tessera_vision_queued_images",)}


class Weather:
    """When clients may ask, and what has happened. Any thread."""

    def __init__(self):
        self.condition = threading.Condition()
        self.go, self.over, self.inside = False, False, 0
        self.away = []  # [from, to] of the gateway; to is None while it lasts
        self.faults_from = self.faults_to = None  # of the present or the last part with faults
        # When records may have been lost: what dies forgets them, and an upload that nobody encodes or keeps
        # while vision, Redis or the gateway stand still is gone.
        self.losses = []

    def enter(self):
        with self.condition:
            self.condition.wait_for(lambda: self.go or self.over)
            if self.over:
                return False
            self.inside += 1
            return True

    def leave(self):
        with self.condition:
            self.inside -= 1
            self.condition.notify_all()

    def let_ask(self):
        with self.condition:
            self.go = True
            self.condition.notify_all()

    def hush(self):
        with self.condition:
            self.go = False
            end = 3 * (CAP + GRACE)
            return self.condition.wait_for(lambda: self.inside == 0, timeout=end)

    def finish(self):
        with self.condition:
            self.over = True
            self.condition.notify_all()

    def gateway_was_away(self, start, end):
        """Seconds of that time, and a little where it was not all there at the ends."""
        with self.condition:
            return sum(max(0.0, min(end, b or end) - max(start, a) + 0.001) for a, b in self.away
                       if a <= end and (b or end) >= start)

    def bad(self, start):
        """Whether what began at `start` may have met a fault: until a little after the last one."""
        with self.condition:
            return self.faults_from is not None and (self.faults_to is None or start < self.faults_to)

    def lost_something_since(self, start):
        with self.condition:
            return any(to is None or to >= start - CAP for _, to in self.losses)


class Soak:
    def __init__(self, seconds, seed, decode, vision):
        self.seconds, self.random = seconds, random.Random(seed)
        self.weather, self.record = Weather(), Record()
        self.done, self.timeline = [], []  # faults; when they came
        self.renewals = itertools.count()
        # Caches that are full before anything is measured.
        small = ("--embedding_store_bytes", "4MiB"), ("--kv_cache_bytes", "8MiB")
        # Redis is stopped, too: the product's own times for it.
        self.fleet = Fleet(vision, decode, flags=small[0], decode_flags=small[1], store_flags=(), gateway_flags=(
            "--load_silence", f"{SILENCE:g}s", "--deadline_cap", f"{CAP}s",
            # Shorter answers are other answers.
            "--deadline_ladder", "redirect,refuse", "--image_handle_key_file", self.key_file()))
        self.processes = {"gateway": [self.fleet.gateway], "vision": self.fleet.vision,
                          "decode": self.fleet.decode, "redis": [self.fleet.redis]}
        self.channel = grpc.insecure_channel(self.fleet.address, options=[
            ("grpc.max_reconnect_backoff_ms", 1000), ("grpc.use_local_subchannel_pool", 1)])
        self.stub = gateway_pb2_grpc.GatewayServiceStub(self.channel)
        self.seed = seed

    def key_file(self):
        import tempfile
        self.key = tempfile.NamedTemporaryFile(suffix=".key")
        self.key.write(bytes(range(32)))
        self.key.flush()
        return self.key.name

    def ask(self, case, renew=False):
        pictures = [PICTURES[n] for n in case.pictures]
        if renew:
            pictures = [renewed(p, f"probe/{next(self.renewals)}") for p in pictures]
        return self.stub.Generate(grpc_request(case, pictures), timeout=PATIENCE).text

    def ask_in_peace(self, case, renew=False):
        """The same where there are no faults; a busy machine may make one look silent all the same."""
        texts = []

        def answered():
            try:
                texts.append(self.ask(case, renew))
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
            return bool(texts)

        wait_until(answered, f"an answer to {case} in peace")
        return texts[0]

    # --- faults

    def one_fault(self, name, kind):
        process = self.random.choice(self.processes[name])
        self.done.append((name, kind))
        self.timeline.append(f"{time.strftime('%H:%M:%S')} {kind} {process.name}")
        began = time.monotonic()
        # What is uploaded is encoded behind its answer, by vision, and kept there and in Redis.
        lists = [self.weather.away] * (name == "gateway") + [self.weather.losses] * (name != "decode")
        with self.weather.condition:
            for intervals in lists:
                intervals.append([began, None])
        if kind == "kill":
            process.kill()
            time.sleep(self.random.uniform(0, 1.5))
            process.start()
        else:
            process.stop()
            time.sleep(self.random.uniform(0.1, 0.7) * SILENCE if kind == "stop" else LONG_STOP)
            process.cont()
        if name != "redis":
            self.fleet.await_ready(process)
        self.await_recovery(f"after {kind} of {name}")
        with self.weather.condition:
            for intervals in lists:
                intervals[-1][1] = time.monotonic()

    def await_recovery(self, what):
        """A known picture and a new one are answered again."""
        left = [(Case((0,), QUESTIONS[0]), False), (Case((1,), QUESTIONS[0]), True)]

        def answered():
            try:
                case, renew = left[0]
                if self.ask(case, renew) != self.quiet.texts[case]:
                    self.record.blame(f"WRONG: probe {what}")
                left.pop(0)
            except grpc.RpcError as error:
                if error.code().name not in ("UNAVAILABLE", "RESOURCE_EXHAUSTED"):
                    self.record.blame(f"ERROR: probe {what}: {error.code()} {error.details()}")
            return not left

        wait_until(answered, f"answers {what}")

    def part(self, kills, seconds, faults):
        """Faults for so long, and at least so many."""
        with self.weather.condition:
            self.weather.faults_from, self.weather.faults_to = time.monotonic(), None
        began, count, left = time.monotonic(), 0, []
        while time.monotonic() - began < seconds or count < faults:
            if time.monotonic() - began > 3 * seconds + 30:
                self.record.blame(f"only {count} faults of {faults} in {3 * seconds + 30:.0f} s")
                break
            if not left:
                left = [(name, "kill") for name in kills]
                left += [(name, kind) for name in self.processes for kind in ("stop", "long stop")]
                self.random.shuffle(left)
                if count == 0:
                    left.append(("decode", "long stop"))  # never without: another takes over
            self.one_fault(*left.pop())
            count += 1
        time.sleep(SILENCE)
        with self.weather.condition:
            self.weather.faults_to = time.monotonic() + 2  # channels of clients come back

    # --- readings

    def calm(self, what):
        if not self.weather.hush():
            self.record.blame(f"{what}: {self.weather.inside} requests hang")
        for name, gauges in GAUGES.items():
            for process in self.processes[name]:
                wait_until(lambda: all(gauge(process, g) == 0 for g in gauges),
                           f"{what}: {process.name} has nothing to do: {gauges}",
                           seconds=CAP + GRACE)

    def reading(self, *names):
        return {process.name: (resident(process), open_files(process))
                for name in names for process in self.processes[name]}

    def hold(self, before, what):
        """Each process of the earlier reading is about as large as then."""
        for name, (memory, files) in before.items():
            process = next(p for group in self.processes.values() for p in group if p.name == name)
            try:
                wait_until(lambda: open_files(process) <= files + FILES, "files", seconds=60)
            except AssertionError:
                self.record.blame(f"{what}: {name} has {open_files(process)} open files, had {files}")
            if resident(process) > memory + GROWTH:
                self.record.blame(f"{what}: {name} has {resident(process)} kB, had {memory}")
            print(f"  {name:10} {memory / 1024:7.1f} MiB -> {resident(process) / 1024:7.1f}   "
                  f"files {files} -> {open_files(process)}")

    # --- the whole

    def warm_up(self, seconds):
        enough = self.record.all_good() + WARM
        self.weather.let_ask()
        time.sleep(seconds)
        wait_until(lambda: self.record.all_good() >= enough, f"{WARM} requests end well in peace")
        self.calm("after a warm-up")

    def run(self):
        warm = min(30, self.seconds / 10)
        part = (self.seconds - 2 * warm) / 2
        faults = min(FAULTS, int(self.seconds / SECONDS_PER_FAULT)) / 2
        self.quiet = Quiet(self.ask_in_peace)
        clients = [Client(n, self.seed, self.fleet, self.quiet, self.weather, self.record) for n in range(CLIENTS)]
        for client in clients:
            client.start()
        print("memory and files, quiet, before and after faults that the process outlived")
        # What is not killed in a part must be after it what it was before.
        for kept, kills in ((("vision", "decode"), ("gateway", "redis")),
                            (("gateway",), ("vision", "decode", "redis"))):
            self.warm_up(warm)
            before = self.reading(*kept)
            self.weather.let_ask()
            self.part(kills, part, faults)
            self.calm("after faults")
            self.hold(before, f"while {', '.join(kills)} were killed")
        self.weather.finish()
        for case in self.quiet.cases[::3]:
            for renew in (False, True):
                if self.ask_in_peace(case, renew) != self.quiet.texts[case]:
                    self.record.blame(f"WRONG at the end: {case}")
        for client in clients:
            client.join(PATIENCE)
        self.check_record()

    def check_record(self):
        """Nothing wrong was seen; enough that is right must have been."""
        record = self.record
        total, good = sum(record.kinds.values()), sum(record.good.values())
        if total < self.seconds or good < SHARE * total:
            record.blame(f"FEW: {good} of {total} requests in {self.seconds:.0f} s ended well")
        for kind, count in record.kinds.items():
            if record.good[kind] < SHARE_OF_KIND * count - 3:  # of a few, chance may take some
                record.blame(f"FEW: {record.good[kind]} of {count} ended well: {kind}")
        if len(self.fleet.decode) > 1 and not (record.failovers["down"] or record.failovers["lost"]):
            record.blame("NEVER: another replica of decode took over")

    def report(self):
        faults = {}
        for name, kind in self.done:
            faults.setdefault(kind, []).append(name)
        print(f"{len(self.done)} faults")
        for kind, names in sorted(faults.items()):
            print(f"  {kind:10}", ", ".join(f"{n} {names.count(n)}" for n in sorted(set(names))))
        print("requests that ended well by kind:", ", ".join(
            f"{kind} {self.record.good[kind]} of {count}" for kind, count in sorted(self.record.kinds.items())))
        print("decode, where the first choice was not asked:", dict(self.record.failovers.most_common()) or "never")
        print("requests by outcome:", dict(self.record.outcomes.most_common()))
        if self.record.longest:
            print("longest: %.2f s of a deadline of %g s" % self.record.longest)

    def close(self):
        self.weather.finish()
        self.channel.close()
        self.fleet.close()
        self.key.close()


def gauge(process, name):
    with urllib.request.urlopen(process.ops + "/metrics", timeout=PATIENCE) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == name)


def resident(process):
    """Kilobytes."""
    text = pathlib.Path(f"/proc/{process.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS"))


def open_files(process):
    return len(os.listdir(f"/proc/{process.process.pid}/fd"))


def main(seconds="600", seed="1", decode="2", vision="1"):
    start = time.monotonic()
    soak = Soak(float(seconds), int(seed), int(decode), int(vision))
    try:
        try:
            soak.run()
        except AssertionError as error:
            soak.record.blame(f"NEVER: {error}")
        except grpc.RpcError as error:
            soak.record.blame(f"ERROR IN PEACE: {error.code()} {error.details()}")
        soak.report()
        wrong = soak.record.wrong
        if wrong:
            print(f"\n{len(wrong)} faults of the product:\n " + "\n ".join(wrong[:40]))
            print("what was done:\n " + "\n ".join(soak.timeline))
            for process in soak.fleet.processes:
                print(f"\n--- {process.name}\n" + process.text()[-3000:])
        print(f"soak of {time.monotonic() - start:.0f} s, seed {seed}, {decode} decode, {vision} vision:",
              "FAILED" if wrong else "passed")
        return 1 if wrong else 0
    finally:
        soak.close()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
