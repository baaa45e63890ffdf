"""The operations port: every documented series, liveness and readiness, what is counted."""

import json
import signal
import subprocess
import threading
import time
import unittest
import urllib.error
import urllib.request

import grpc

from client import OTHER, PATIENCE, PICTURE, QUESTION, UNREAD, Base, gateway_pb2, gateway_pb2_grpc, request
from harness import MODEL, SANITIZED, Server, run
from series import CACHE, DECODE, EVERYBODY, GATEWAY, OF_A_MODEL, VISION, Scrape, check_fresh

# What one process is that does it all, with its records in its own memory.
SERIES = {**GATEWAY, **VISION, **DECODE, **CACHE, **OF_A_MODEL, **EVERYBODY}


def get(server, path, method="GET"):
    """Status, headers and text of a page."""
    ask = urllib.request.Request(f"http://{server.ops_address}{path}", method=method)
    try:
        with urllib.request.urlopen(ask, timeout=PATIENCE) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read().decode()


def scrape(server):
    return Scrape(get(server, "/metrics")[2])


def until(what, condition):
    """Waits for a condition that only a fault keeps from coming."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not in {PATIENCE} s: {what}")
        time.sleep(0.01)


def endless(*pictures, **options):
    """An answer that goes on for long: one token that is always the likeliest."""
    return request("Describe the shelf.", *pictures, max_tokens=1700, logit_bias={100: 100}, **options)


class LogTest(Base):
    def test_a_log_that_nobody_reads_keeps_nobody_waiting(self):
        with Server(stderr=subprocess.PIPE) as server, grpc.insecure_channel(server.address) as channel:
            stub = gateway_pb2_grpc.GatewayServiceStub(channel)
            lost = lambda: scrape(server).sum("tessera_log_lines_dropped_total")
            asked = 0
            while not lost():  # the pipe is filled by some hundred lines
                self.assertLess(asked, 5000)
                for _ in range(50):
                    stub.Generate(request("Hello?", max_tokens=1), timeout=PATIENCE)
                asked += 50
            before = lost()
            stub.Generate(request("Hello?", max_tokens=1), timeout=PATIENCE)
            self.assertGreater(lost(), before)
            with server.process.stderr as log:
                until("what was lost is told", lambda: b"lines of this log were lost" in log.read1(1 << 20) or
                      stub.Generate(request("Hello?", max_tokens=1), timeout=PATIENCE) is None)


class SeriesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.text = get(cls.server, "/metrics")[2]  # before the first request
        cls.scrape = Scrape(cls.text)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def test_every_series_is_there_with_its_labels_and_begins_at_0(self):
        check_fresh(self, self.scrape, SERIES, "shelf-vqa")

    def test_what_is_constant_is_told(self):
        self.assertEqual(self.scrape.sum("tessera_build_info"), 1)
        self.assertEqual(self.scrape.sum("tessera_model_info"), 1)
        self.assertEqual(self.scrape.sum("tessera_decode_cache_config_info"), 1)
        self.assertGreater(self.scrape.sum("tessera_device_memory_bytes", kind="weights", device="cpu"), 1 << 20)
        self.assertGreater(self.scrape.sum("tessera_device_memory_bytes", kind="kv_cache", device="cpu"), 1 << 20)
        self.assertGreater(self.scrape.sum("tessera_model_load_duration_seconds"), 0)
        self.assertGreater(self.scrape.sum("tessera_start_timestamp_seconds"), 1.7e9)
        self.assertLess(abs(self.scrape.sum("tessera_start_timestamp_seconds") -
                            self.scrape.sum("process_start_time_seconds")), 86400)

    def test_promtool_finds_nothing_to_say(self):
        done = subprocess.run(["promtool", "check", "metrics"], input=self.text, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_pages(self):
        status, headers, _ = get(self.server, "/metrics")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/plain; version=0.0.4; charset=utf-8"))
        self.assertEqual(get(self.server, "/healthz")[::2], (200, "ok\n"))
        self.assertEqual(get(self.server, "/readyz")[0], 200)
        self.assertEqual(set(get(self.server, "/readyz")[2].splitlines()), {"model: ok", "canary: ok", "serving: ok", "device: ok"})
        self.assertEqual(get(self.server, "/healthz", "HEAD")[::2], (200, ""))
        self.assertEqual(get(self.server, "/", "GET")[0], 404)
        self.assertEqual(get(self.server, "/metrics", "DELETE")[0], 405)
        state = json.loads(get(self.server, "/debug/state")[2])["server"]
        self.assertEqual((state["loaded"], state["decode"]["running"]), (True, 0))

        def leaves(value):
            return [x for v in value.values() for x in leaves(v)] if isinstance(value, dict) else [value]

        self.assertTrue(all(isinstance(leaf, (int, bool)) for leaf in leaves(state)), "counts only")

    def test_a_taken_port_is_an_error_at_start(self):
        code, out, err = run("serve", "--model", MODEL, "--grpc_address", "127.0.0.1:0",
                             "--ops_address", self.server.ops_address)
        self.assertEqual(code, 1, out)
        self.assertIn(self.server.ops_address, err)
        self.assertIn("--ops_address", err)
        self.assertEqual(get(self.server, "/healthz")[0], 200)
        code, _, err = run("serve", "--model", MODEL, "--grpc_address", "127.0.0.1:0",
                           "--ops_address", "nonsense")
        self.assertEqual(code, 2)
        self.assertIn("nonsense", err)

    def test_without_an_address_there_is_no_port(self):
        with Server("--ops_address", "") as server:
            self.assertIsNone(server.ops_address)


class LateTest(Base):
    # A late answer fails, it is not shortened. The deadline is the server's: a client's own gRPC may cancel its call
    # before the time that it gave is over here.
    flags = ("--deadline_ladder", "", "--deadline_cap", "100ms")

    def test_an_answer_that_is_late_is_counted_as_such(self):
        for i in range(20):
            with self.assertRaises(grpc.RpcError) as caught:
                list(self.stub.GenerateStream(gateway_pb2.GenerateStreamRequest(request=endless(PICTURE)),
                                              timeout=PATIENCE))
            self.assertEqual(caught.exception.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        codes = lambda: scrape(self.server).by("tessera_gateway_requests_total", "code")
        until("all are counted", lambda: sum(codes().values()) == 20)
        self.assertEqual(codes(), {"DEADLINE_EXCEEDED": 20})
        self.assertEqual(scrape(self.server).sum("tessera_gateway_client_cancellations_total"), 0)


class CountsTest(Base):
    flags = ("--slow_client_timeout", "5m")

    def stream(self, message, **options):
        return self.stub.GenerateStream(gateway_pb2.GenerateStreamRequest(request=message), **options)

    def test_every_request_is_counted_once_however_it_ends(self):
        for i in range(20):
            self.stub.Generate(request(QUESTION, PICTURE), timeout=PATIENCE)
            list(self.stream(request(QUESTION, OTHER), timeout=PATIENCE))
        for i in range(20):
            self.refused(self.stub.Generate, request(QUESTION, b"no picture" if i % 2 else PICTURE, top_p=7))
        with grpc.insecure_channel(self.server.address, options=UNREAD) as channel:
            stub = gateway_pb2_grpc.GatewayServiceStub(channel)
            for i in range(20):
                call = stub.GenerateStream(gateway_pb2.GenerateStreamRequest(
                    request=endless(PICTURE, top_logprobs=5)), timeout=PATIENCE)
                next(call)  # and no more: it cannot end by itself
                call.cancel()
        until("all have ended", lambda: self.all_ended(scrape(self.server)))
        now = scrape(self.server)
        self.assertEqual(now.by("tessera_gateway_requests_total", "code"),
                         {"OK": 40, "INVALID_ARGUMENT": 20, "CANCELLED": 20})
        # The same calls, as the layer below sees them.
        self.assertEqual(self.started(now), 80)
        self.assertEqual(now.sum("tessera_gateway_request_duration_seconds", "_count"), 80)
        self.assertEqual(now.sum("tessera_gateway_client_cancellations_total"), 20)
        self.assertEqual(now.sum("tessera_gateway_queued_requests"), 0)
        # One first token for each answer that began: all good ones, all cancelled ones.
        self.assertEqual(now.sum("tessera_gateway_time_to_first_token_seconds", "_count"), 60)
        self.check_tokens(now)

    def all_ended(self, now):
        return (now.sum("tessera_gateway_inflight_requests") == 0 and
                now.sum("tessera_decode_requests_running") == 0 and
                self.started(now) == now.sum("tessera_gateway_requests_total"))

    def started(self, now):
        return sum(now.sum("grpc_server_call_started_total", grpc_method=f"tessera.v1.GatewayService/{method}")
                   for method in ("Generate", "GenerateStream"))

    def check_tokens(self, now):
        self.assertEqual(now.sum("tessera_gateway_request_prompt_tokens", "_count"), 40)
        self.assertEqual(now.sum("tessera_gateway_request_image_tokens", "_sum"), 40 * 256)
        self.assertEqual(now.by("tessera_gateway_time_to_first_token_seconds", "image_cache", "_count")["computed"], 2)
        self.assertEqual(now.by("tessera_vision_images_total", "outcome")["computed"], 2)
        self.assertEqual(now.sum("tessera_vision_rows_total", kind="produced"), 2 * 256)
        self.assertEqual(now.sum("tessera_vision_stage_duration_seconds", "_count", stage="encode"), 2)
        self.assertGreaterEqual(now.sum("tessera_decode_requests_finished_total", finished_reason="stop"), 40)
        steps = now.sum("tessera_decode_step_tokens", "_sum")
        self.assertGreater(steps, now.sum("tessera_decode_generation_tokens_total"))
        self.assertGreater(now.sum("tessera_decode_prefix_cache_hits_total"), 38 * 256)


class PreemptionTest(Base):
    flags = ("--kv_cache_bytes", "4MiB")  # 1360 tokens

    def test_an_answer_that_gave_way_has_one_first_token_all_the_same(self):
        # FAULTS B093. Of text in few bytes the gateway expects few tokens: it lets in two, for whom there is no room.
        asked = preempted = 0
        while preempted == 0:
            self.assertLess(asked, 120)
            messages = [request(f"{asked + i:04}" + "\u4e16" * 100, max_tokens=550, logit_bias={100: 100})
                        for i in range(6)]
            calls = [self.stub.Generate.future(message, timeout=PATIENCE) for message in messages]
            answers = [call.result() for call in calls]
            asked += len(answers)
            self.assertEqual({answer.usage.output_tokens for answer in answers}, {550})
            preempted = sum(answer.receipt.preemptions for answer in answers)
        now = scrape(self.server)
        self.assertEqual(now.sum("tessera_decode_preemptions_total"), preempted)
        self.assertEqual(now.sum("tessera_gateway_time_to_first_token_seconds", "_count"), asked)
        self.assertEqual(now.sum("tessera_gateway_requests_total", code="OK"), asked)
        self.assertEqual(now.sum("tessera_decode_requests_finished_total"), asked)
        self.assertEqual(now.sum("tessera_gateway_queued_requests"), 0)


class LadderTest(Base):
    TOKENS = 60 if SANITIZED else 200

    def ask(self, timeout):
        return self.stub.Generate(
            request("Describe the shelf.", PICTURE, max_tokens=self.TOKENS, logit_bias={100: 100}), timeout=timeout)

    def test_an_answer_that_would_be_late_is_shortened_and_says_so(self):
        for _ in range(12):
            took = self.whole()
        late = self.half(took)
        self.assertLess(late.usage.output_tokens, self.TOKENS)
        self.assertEqual(late.receipt.degraded[0], f"output: ended after {late.usage.output_tokens} tokens "
                                                   f"instead of {self.TOKENS} for its deadline")
        self.assertGreaterEqual(scrape(self.server).sum("tessera_gateway_degraded_requests_total", step="output"), 1)

    def whole(self):
        """Seconds of an answer that has the time it takes; the server learns how fast it is."""
        took = -time.monotonic()
        whole = self.ask(PATIENCE)
        took += time.monotonic()
        self.assertEqual((whole.usage.output_tokens, len(whole.receipt.degraded)), (self.TOKENS, 0))
        return took

    def half(self, took):
        """An answer in half the time that it takes; a forecast of a busy machine may be wrong."""
        for attempt in range(20):
            try:
                answer = self.ask(took / 2)
            except grpc.RpcError as error:
                self.assertEqual(error.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
                took = max(1.2 * took, self.whole())  # slower than the server had learned
                continue
            if answer.receipt.degraded:
                return answer
            took /= 2  # the machine has become faster
        raise AssertionError("it was late, or not shortened, 20 times")


class DrainingTest(unittest.TestCase):
    def test_draining_is_not_ready_but_alive_and_ends_what_runs(self):
        with Server("--drain_timeout", "1h") as server, grpc.insecure_channel(server.address) as channel:
            stub = gateway_pb2_grpc.GatewayServiceStub(channel)
            release = threading.Event()

            def chunks():
                yield gateway_pb2.UploadImageRequest(data=PICTURE[:1000])
                release.wait(PATIENCE)
                yield gateway_pb2.UploadImageRequest(data=PICTURE[1000:])

            upload = stub.UploadImage.future(chunks())
            until("the upload runs", lambda: json.loads(get(server, "/debug/state")[2])["server"]["gateway"]
                  ["inflight_requests"] == 1)
            stream = stub.GenerateStream(gateway_pb2.GenerateStreamRequest(request=endless(PICTURE)))
            next(stream)
            server.process.send_signal(signal.SIGTERM)
            until("not ready", lambda: get(server, "/readyz")[0] == 503)
            self.assertIn("serving: draining\n", get(server, "/readyz")[2])
            self.assertEqual(get(server, "/healthz")[::2], (200, "ok\n"))
            self.assertEqual(scrape(server).sum("tessera_draining"), 1)
            with self.assertRaises(grpc.RpcError) as caught:
                stub.Generate(request(QUESTION, PICTURE), timeout=PATIENCE)
            # By a port that is closed: a client with other addresses goes there unasked.
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
            self.assertEqual(scrape(server).sum("tessera_gateway_rejected_requests_total", reason="draining"), 0)
            events = list(stream)
            self.assertTrue(events[-1].HasField("end"))
            self.assertEqual(get(server, "/healthz")[0], 200)
            release.set()
            self.assertTrue(upload.result(PATIENCE).handle)
            self.assertEqual(server.process.wait(PATIENCE), 0)


if __name__ == "__main__":
    unittest.main()
