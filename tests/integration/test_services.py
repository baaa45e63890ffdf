"""Four processes: what they answer, and what becomes of requests when one of them is lost."""

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
import unittest
import urllib.error
import urllib.request

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from client import (OTHER, PATIENCE, PICTURE, QUESTION, UNREAD, data_url, error_details, gateway_pb2, gateway_pb2_grpc,
                    post_chat, request)
from harness import MODEL
from fleet import Fleet, wait_until
from tessera.v1 import types_pb2

# A machine under sanitizers may not get round to a word every 250 ms.
SLOW = ("--load_silence", "60s")
ANSWER = "37"


def redis_says(port, *words):
    """The reply to a command: a line or a text; an error as such."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as redis:
        redis.sendall(" ".join(words).encode() + b"\r\n")
        reply = redis.makefile("rb")
        kind, line = reply.read(1), reply.readline().decode().strip()
        return reply.read(int(line)).decode() if kind == b"$" else line


def get_page(process, path):
    with urllib.request.urlopen(process.ops + path, timeout=PATIENCE) as page:
        return page.read().decode()


class FleetTest(unittest.TestCase):
    vision, decode = 1, 1
    flags = vision_flags = decode_flags = ()
    gateway_flags = SLOW

    def setUp(self):
        self.fleet = Fleet(self.vision, self.decode, self.flags, self.gateway_flags, self.vision_flags,
                           self.decode_flags)
        self.addCleanup(self.fleet.close)
        self.channel = grpc.insecure_channel(self.fleet.address)
        self.addCleanup(lambda: self.channel.close())
        self.stub = gateway_pb2_grpc.GatewayServiceStub(self.channel)
        self.await_up, self.await_down, self.restart = self.fleet.await_up, self.fleet.await_down, self.fleet.restart

    def ask(self, *pictures, text=QUESTION, timeout=PATIENCE, session="", **fields):
        asked = request(text, *pictures)
        asked.session = session
        for name, value in fields.items():
            setattr(asked, name, value)
        return self.stub.Generate(asked, timeout=timeout)

    def ask_until_kept(self, *pictures, **options):
        """The answer about a first picture, once Redis has its rows, which vision writes behind it."""
        answer = self.ask(*pictures, **options)
        wait_until(lambda: self.records() == 1, "Redis has the rows")
        return answer

    def records(self):
        """How many Redis has; 0 while there is none."""
        try:
            return int(redis_says(self.fleet.redis_port, "DBSIZE"))
        except OSError:
            return 0

    def error(self, *pictures, **fields):
        with self.assertRaises(grpc.RpcError) as caught:
            self.ask(*pictures, **fields)
        return caught.exception

    def unavailable_at_once(self, service, *pictures):
        """Who is lost is told, and when to ask again: not after waiting for him until the deadline."""
        began = time.monotonic()
        error = self.error(*pictures, timeout=60)
        self.assertLess(time.monotonic() - began, 30)
        self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertIn(service, error.details())
        found = error_details(error)
        self.assertRegex(found["ErrorInfo"].reason, "^[A-Z_]+$")
        self.assertGreater(found["RetryInfo"].retry_delay.ToMilliseconds(), 0)
        status, headers, body = post_chat(self.fleet.http_address, {"messages": [{"role": "user", "content": [
            *({"type": "image_url", "image_url": {"url": data_url(p)}} for p in pictures),
            {"type": "text", "text": QUESTION}]}]})
        self.assertEqual((status, body["error"]["type"]), (503, "unavailable_error"), body)
        self.assertGreater(int(headers["Retry-After"]), 0)


class OneOfEachTest(FleetTest):
    decode_flags = ("--slow_client_timeout", "5m")
    gateway_flags = (*SLOW, *decode_flags)

    def test_the_answer_is_that_of_the_one_process(self):
        answer = self.ask(PICTURE)
        self.assertEqual(answer.text.strip(), ANSWER)
        receipt = answer.receipt
        self.assertEqual(receipt.images[0].cache, types_pb2.CACHE_TIER_COMPUTED)
        self.assertEqual(receipt.replica, self.fleet.decode[0].address)
        self.assertEqual(receipt.replica_reason, "only replica")
        self.assertEqual(receipt.images[0].replica, self.fleet.vision[0].address)
        again = self.ask(PICTURE).receipt
        self.assertEqual(again.images[0].cache, types_pb2.CACHE_TIER_PREFIX_KV)
        self.assertEqual(again.images[0].replica, "")

    def test_health_follows_decode_on_both_ports(self):
        health = health_pb2_grpc.HealthStub(self.channel)

        def says(ready):
            with contextlib.suppress(grpc.RpcError):
                word = health.Check(health_pb2.HealthCheckRequest(service="readiness"), timeout=PATIENCE).status
                return ready == (word == health_pb2.HealthCheckResponse.SERVING)

        def page():
            try:
                with urllib.request.urlopen(f"http://{self.fleet.http_address}/health", timeout=PATIENCE) as found:
                    return found.status
            except urllib.error.HTTPError as error:
                return error.code

        decode = self.fleet.decode[0]
        wait_until(lambda: says(True), "it serves")
        self.assertEqual(page(), 200)
        decode.kill()
        self.await_down("decode", decode)
        wait_until(lambda: says(False), "without decode it does not")
        self.assertEqual(page(), 503)
        self.restart("decode", decode)
        wait_until(lambda: says(True), "it serves again")
        self.assertEqual(page(), 200)

    def test_a_new_decode_reads_the_rows_from_redis(self):
        self.ask_until_kept(PICTURE)
        self.restart("decode", self.fleet.decode[0])
        answer = self.ask(PICTURE)
        self.assertEqual(answer.text.strip(), ANSWER)
        self.assertEqual(answer.receipt.images[0].cache, types_pb2.CACHE_TIER_STORE)

    def test_without_redis_new_pictures_are_read_from_their_origin(self):
        self.ask(PICTURE)
        self.fleet.redis.kill()
        answer = self.ask(OTHER, text="How many items are missing in row 3?")
        self.assertEqual(answer.receipt.images[0].cache, types_pb2.CACHE_TIER_COMPUTED)
        self.assertTrue(answer.text.strip())
        # Also what vision has and a new decode has not.
        self.restart("decode", self.fleet.decode[0])
        answer = self.ask(PICTURE)
        self.assertEqual(answer.text.strip(), ANSWER)
        self.assertEqual(answer.receipt.images[0].cache, types_pb2.CACHE_TIER_ORIGIN)

    def test_without_vision_known_pictures_are_answered_and_others_fail_at_once(self):
        self.ask_until_kept(PICTURE)
        self.fleet.vision[0].kill()
        self.await_down("vision", self.fleet.vision[0])
        self.assertEqual(self.ask(PICTURE).text.strip(), ANSWER)
        self.unavailable_at_once("vision", OTHER)
        # From the store, where the prefix cache is a new one.
        self.restart("decode", self.fleet.decode[0])
        self.assertEqual(self.ask(PICTURE).text.strip(), ANSWER)
        # Without the picture, for who would rather have that.
        answer = self.ask(OTHER, on_encoder_loss=gateway_pb2.ENCODER_LOSS_TEXT_ONLY)
        self.assertTrue(answer.text.startswith("[A picture could not be looked at"), answer.text)
        self.assertEqual(len(answer.receipt.degraded), 1)
        self.fleet.vision[0].start()
        self.await_up("vision", self.fleet.vision[0])
        self.assertEqual(self.ask(OTHER, text=QUESTION).receipt.images[0].cache,
                         types_pb2.CACHE_TIER_COMPUTED)

    def test_a_gateway_that_starts_without_vision_answers_what_needs_no_new_picture(self):
        for process in (self.fleet.vision[0], self.fleet.gateway):
            process.kill()
        self.fleet.gateway.start()
        self.fleet.await_ready(self.fleet.gateway)
        self.reconnect()
        self.assertIn("starts without vision", self.fleet.gateway.text())
        self.assertTrue(self.stub.Generate(request("Describe the shelf."), timeout=PATIENCE).text)
        self.unavailable_at_once("vision", PICTURE)
        answer = self.ask(OTHER, on_encoder_loss=gateway_pb2.ENCODER_LOSS_TEXT_ONLY)
        self.assertEqual(len(answer.receipt.degraded), 1)
        self.fleet.vision[0].start()
        self.await_up("vision", self.fleet.vision[0])
        answer = self.ask(PICTURE)
        self.assertEqual(answer.text.strip(), ANSWER)
        self.assertEqual(answer.receipt.images[0].cache, types_pb2.CACHE_TIER_COMPUTED)
        self.assertEqual(self.ask(PICTURE).receipt.images[0].cache, types_pb2.CACHE_TIER_PREFIX_KV)

    def reconnect(self):
        """A channel of before the gateway's end may wait before it tries again."""
        self.channel.close()
        self.channel = grpc.insecure_channel(self.fleet.address)
        self.stub = gateway_pb2_grpc.GatewayServiceStub(self.channel)

    def test_a_picture_is_itself_whoever_was_restarted_since_the_last(self):
        # FAULTS B044: ids that begin anew would name another's record in Redis, which has them all.
        gateway, decode, vision = self.fleet.gateway, self.fleet.decode[0], self.fleet.vision[0]
        for number, restarted in enumerate([[gateway], [decode], [vision], [gateway, decode, vision]]):
            behind_the_end = bytes(number)  # the same pixels as a new picture
            self.assertEqual(self.ask(PICTURE + behind_the_end).text, " 37")
            wait_until(lambda: self.records() == 2 * number + 1, "Redis has the first")
            for process in restarted:
                process.kill()
            if gateway not in restarted:
                self.await_down("decode" if decode in restarted else "vision", restarted[0])
            for process in restarted:
                process.start()
            self.fleet.await_ready(*restarted)
            self.reconnect()
            self.await_up("vision", vision)
            self.await_up("decode", decode)
            other = self.ask(OTHER + behind_the_end)
            self.assertEqual(other.text, " 25")
            self.assertEqual(other.receipt.images[0].cache, types_pb2.CACHE_TIER_COMPUTED)
            wait_until(lambda: self.records() == 2 * number + 2, "Redis has the second, too")
            self.assertEqual(self.ask(PICTURE + behind_the_end).text, " 37")
            self.assertEqual(self.ask(OTHER + behind_the_end).text, " 25")

    def test_rows_that_are_gone_everywhere_are_made_again(self):
        self.ask(PICTURE)
        self.fleet.redis.kill()
        for service, process in (("decode", self.fleet.decode[0]), ("vision", self.fleet.vision[0])):
            self.restart(service, process)
        answer = self.ask(PICTURE)
        self.assertEqual(answer.text.strip(), ANSWER)
        self.assertEqual(answer.receipt.images[0].cache, types_pb2.CACHE_TIER_COMPUTED)

    def test_without_decode_requests_fail_at_once_with_a_retry(self):
        self.fleet.decode[0].kill()
        self.await_down("decode", self.fleet.decode[0])
        self.unavailable_at_once("decode", PICTURE)
        self.fleet.decode[0].start()
        self.await_up("decode", self.fleet.decode[0])
        self.assertEqual(self.ask(PICTURE).text.strip(), ANSWER)

    def test_sigterm_ends_each_process_well(self):
        self.ask(PICTURE)
        for process in (self.fleet.gateway, self.fleet.decode[0], self.fleet.vision[0]):
            self.assertEqual(process.terminate(), 0, process.text())
            self.assertIn("stopped", process.text())

    def check_second_signal(self, process):
        """The process has something that holds its end."""
        process.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "draining" in process.text(), f"{process.name} drains")
        self.assertIsNone(process.process.poll(), process.text())
        process.process.send_signal(signal.SIGTERM)
        self.assertEqual(process.process.wait(PATIENCE), -signal.SIGTERM, process.text())

    def test_a_second_signal_ends_a_process_at_once(self):
        asked = request("Describe the shelf.", max_tokens=2000, logit_bias={100: 100}, top_logprobs=5)
        with grpc.insecure_channel(self.fleet.address, options=UNREAD) as channel:
            unread = gateway_pb2_grpc.GatewayServiceStub(channel).GenerateStream(
                gateway_pb2.GenerateStreamRequest(request=asked))
            next(unread)  # and no more: the answer waits for its reader
            self.check_second_signal(self.fleet.decode[0])
        release = threading.Event()
        self.addCleanup(release.set)
        silent = self.stub.UploadImage.future(iter(release.wait, None))
        self.stub.GetModelInfo(gateway_pb2.GetModelInfoRequest())  # behind it on the wire
        self.check_second_signal(self.fleet.gateway)
        self.assertEqual(silent.code(), grpc.StatusCode.UNAVAILABLE)


class ExposureTest(unittest.TestCase):
    """No service listens beyond this machine unless it knows who asks, or was told not to care."""

    def refusal(self, binary, *flags):
        done = subprocess.run([os.environ[binary], *flags], capture_output=True, text=True, timeout=PATIENCE)
        return done.returncode, done.stderr

    def test_the_network_needs_keys_mutual_tls_or_the_operators_word(self):
        code, err = self.refusal("GATEWAY_BINARY", "--grpc_address", "0.0.0.0:0", "--ops_address", "127.0.0.1:0")
        self.assertEqual(code, 2, err)
        self.assertIn("--api_keys_file", err)
        for binary in ("VISION_BINARY", "DECODE_BINARY"):
            code, err = self.refusal(binary, "--model", str(MODEL), "--grpc_address", "0.0.0.0:0",
                                     "--ops_address", "127.0.0.1:0")
            self.assertEqual(code, 2, err)
            self.assertIn("--tls_client_ca_file", err)
            self.assertIn("--trusted_network", err)

    def test_vision_on_every_address_needs_the_one_under_which_decode_reaches_it(self):
        everywhere = ("--model", str(MODEL), "--trusted_network", "on", "--ops_address", "127.0.0.1:0")
        for address in ("0.0.0.0:0", "[::]:0"):
            code, err = self.refusal("VISION_BINARY", *everywhere, "--grpc_address", address)
            self.assertEqual(code, 2, err)
            self.assertIn("--origin", err)
            self.assertIn("--vision_origins", err)


class PeersTest(unittest.TestCase):
    def gateway(self, *flags):
        return [os.environ["GATEWAY_BINARY"], "--grpc_address", "127.0.0.1:0", "--http_address", "",
                "--ops_address", "127.0.0.1:0", *flags]

    def test_a_gateway_says_whom_it_waits_for_and_why(self):
        with subprocess.Popen(self.gateway("--decode_addresses", "127.0.0.1:1"), stderr=subprocess.PIPE,
                              text=True) as gateway:
            line = next(line for line in gateway.stderr if line.startswith("{"))
            gateway.terminate()
        self.assertEqual(gateway.returncode, 0)
        for word in ("127.0.0.1:1", "--decode_addresses", "Connection refused"):
            self.assertIn(word, line)

    def test_an_address_that_is_none_is_told_at_once(self):
        for flag in ("--vision_addresses", "--decode_addresses"):
            for address in ("127.0.0.1", "", "http://127.0.0.1:9100", "127.0.0.1:1,nonsense"):
                done = subprocess.run(self.gateway(flag, address), capture_output=True, text=True, timeout=PATIENCE)
                self.assertEqual(done.returncode, 2, (flag, address, done.stderr))
                self.assertIn(flag, done.stderr)

    def test_a_decode_that_no_rows_can_reach_says_so(self):
        with subprocess.Popen([os.environ["DECODE_BINARY"], "--model", str(MODEL), "--grpc_address", "127.0.0.1:0",
                               "--ops_address", "127.0.0.1:0", "--vision_origins", ""],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as decode:
            line = next(line for line in decode.stderr if line.startswith("{"))
            decode.kill()
        self.assertIn("--vision_origins", line)
        self.assertIn("--embedding_store", line)


if __name__ == "__main__":
    unittest.main()
