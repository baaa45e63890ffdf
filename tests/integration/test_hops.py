"""What lies between the processes: sizes, silence, a Redis that is full or comes late, ports."""

import re
import subprocess
import threading
import unittest

import grpc

from client import PATIENCE, PICTURE, QUESTION, data_url, post_chat, types_pb2
from fleet import wait_until
from harness import SANITIZED
from series import Scrape
from test_services import FleetTest, get_page, redis_says


class SizesTest(FleetTest):
    """FAULTS B070. Bytes behind a JPEG's end are legal, so a picture can have any size."""

    LIMIT = 36 << 20  # beyond what each process takes unasked
    gateway_flags = (*FleetTest.gateway_flags, "--max_image_bytes", str(LIMIT), "--max_message_bytes", "60MiB")
    vision_flags = ("--max_image_bytes", str(LIMIT))

    def over_http(self, picture):
        body = {"messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": data_url(picture)}}, {"type": "text", "text": QUESTION}]}]}
        status, _, answer = post_chat(self.fleet.http_address, body)
        return status, answer

    def test_a_picture_up_to_the_limit_passes_every_hop_and_beyond_it_the_limit_is_named(self):
        small = self.ask(PICTURE).usage
        for size in (5 << 20, self.LIMIT - 1, self.LIMIT):
            picture = PICTURE.ljust(size, b"\0")
            answer = self.ask(picture)
            self.assertEqual((answer.text, answer.receipt.images[0].cache), (" 37", types_pb2.CACHE_TIER_COMPUTED))
            self.assertEqual(answer.usage.prompt_tokens, small.prompt_tokens)
            status, body = self.over_http(picture)
            self.assertEqual(status, 200, body)
            self.assertEqual(body["choices"][0]["message"]["content"], " 37")
            self.assertEqual(body["usage"]["prompt_tokens"], small.prompt_tokens)
        picture = PICTURE.ljust(self.LIMIT + 1, b"\0")
        error = self.error(picture)
        self.assertEqual(error.code(), grpc.StatusCode.INVALID_ARGUMENT)
        self.assertIn(str(self.LIMIT), error.details())
        status, body = self.over_http(picture)
        self.assertEqual((status, body["error"]["code"]), (413, "image_too_large"))
        self.assertIn(str(self.LIMIT), body["error"]["message"])


class SilenceTest(FleetTest):
    flags = ("--drain_timeout", "1s")

    def test_silent_streams_do_not_hold_a_service(self):
        # FAULTS B071.
        for process, method, other in (
                (self.fleet.decode[0], "tessera.v1.DecodeService/Generate", "tessera.v1.DecodeService/GetInfo"),
                (self.fleet.vision[0], "tessera.v1.VisionService/Encode", "tessera.v1.VisionService/GetInfo")):
            with grpc.insecure_channel(process.address) as channel:
                release = threading.Event()

                def silent():
                    release.wait(PATIENCE)
                    yield from ()

                calls = [channel.stream_stream("/" + method)(silent()) for _ in range(3)]
                channel.unary_unary("/" + other)(b"", timeout=PATIENCE)  # behind them on the wire
                self.assertEqual(process.terminate(), 0, process.text())
                for call in calls:
                    self.assertEqual(call.code(), grpc.StatusCode.UNAVAILABLE, call.details())
                release.set()


class RedisTest(FleetTest):
    made = 0

    def new_pictures(self, count):
        """Answers about pictures that nobody has seen."""
        for _ in range(count):
            self.made += 1
            answer = self.ask(PICTURE + self.made.to_bytes(4, "big"))
            self.assertEqual((answer.text, answer.receipt.images[0].cache), (" 37", types_pb2.CACHE_TIER_COMPUTED))

    def redis(self, *words):
        return redis_says(self.fleet.redis_port, *words)

    def refused_writes(self):
        scrape = Scrape(get_page(self.fleet.vision[0], "/metrics"))
        return scrape.sum("tessera_embedding_cache_failed_writes_total", reason="refused")

    def writes(self):
        """How often Redis was told to keep something, and did it or not."""
        stats = self.redis("INFO", "commandstats")
        line = next((line for line in stats.splitlines() if line.startswith("cmdstat_set:")), "")
        return sum(int(value) for name, value in re.findall(r"(\w+)=(\d+)", line)
                   if name in ("calls", "rejected_calls"))

    def test_a_full_redis_is_no_matter_to_any_request(self):
        # FAULTS B081.
        for policy, room in (("noeviction", 1 << 20), ("allkeys-lru", 1 << 20), ("allkeys-lru", -(1 << 19))):
            self.redis("CONFIG", "SET", "maxmemory-policy", policy)
            used = int(self.redis("INFO", "memory").split("used_memory:")[1].split()[0])
            self.redis("CONFIG", "SET", "maxmemory", str(used + room))
            refused = self.refused_writes()
            self.new_pictures(15 if SANITIZED else 50)  # there is room for 8
            if policy == "noeviction" or room < 0:
                wait_until(lambda: self.refused_writes() > refused, "a write was refused and counted")
            # Vision and decode offer each once at most, refused or not.
            self.assertLessEqual(self.writes(), 2 * self.made)
            self.redis("CONFIG", "SET", "maxmemory", "0")
            self.redis("FLUSHALL")
        wait_until(lambda: self.new_pictures(1) or self.records() > 0, "it is written to again")

    def test_services_are_ready_before_their_redis_and_find_it_when_it_comes(self):
        # FAULTS B078.
        self.fleet.redis.kill()
        for service, process in (("decode", self.fleet.decode[0]), ("vision", self.fleet.vision[0])):
            self.restart(service, process)
            self.fleet.await_ready(process)
        self.new_pictures(3)
        self.fleet.redis.start()

        wait_until(lambda: self.new_pictures(1) or self.records() > 0, "Redis is used")
        # By both: what vision wrote, decode reads.
        self.restart("decode", self.fleet.decode[0])
        self.fleet.await_ready(self.fleet.decode[0])
        wait_until(lambda: self.ask(PICTURE + self.made.to_bytes(4, "big")).receipt.images[0].cache in
                   (types_pb2.CACHE_TIER_STORE, types_pb2.CACHE_TIER_PREFIX_KV), "decode reads from it")


class PortsTest(FleetTest):
    def test_a_taken_port_ends_a_process_with_its_name_and_flag(self):
        # FAULTS B094.
        for process in (self.fleet.gateway, self.fleet.vision[0], self.fleet.decode[0]):
            ops = process.ops.removeprefix("http://")
            for flag, taken in (("--grpc_address", process.address), ("--ops_address", ops)):
                command = list(process.command)
                for name in ("--grpc_address", "--ops_address"):
                    command[command.index(name) + 1] = taken if name == flag else "127.0.0.1:0"
                if "--http_address" in command:
                    command[command.index("--http_address") + 1] = "127.0.0.1:0"
                done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertIn(taken, done.stderr)
                self.assertIn(flag, done.stderr)
        self.assertEqual(self.ask(PICTURE).text, " 37")


if __name__ == "__main__":
    unittest.main()
