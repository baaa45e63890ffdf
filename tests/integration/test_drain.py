"""The end of a server: what runs is finished, the rest goes elsewhere. RESTARTS=20 restarts that often."""

import contextlib
import http.client
import json
import os
import random
import signal
import threading
import time
import unittest
import urllib.error
import urllib.request

import grpc

from client import OTHER, PATIENCE, PICTURE, QUESTION, error_details, gateway_pb2, gateway_pb2_grpc, request
from fleet import wait_until
from harness import Server


def reason(error):
    """Of its ErrorInfo; empty where that is missing."""
    return error_details(error)["ErrorInfo"].reason if "ErrorInfo" in error_details(error) else ""


def last_error(events):
    """The code of the error that ends a body of events; empty where none does, or the end is missing."""
    try:
        lines = [line for line in events.read().decode().splitlines() if line]
    except http.client.IncompleteRead:
        return ""
    last = lines[-1] if lines else "data: [DONE]"
    return "" if last == "data: [DONE]" else json.loads(last.removeprefix("data: "))["error"]["code"]


class DrainTest(unittest.TestCase):
    def check_told(self, told, scenario):
        """The last word of a server that gets no processor may be cut: then once more, with another one."""
        seen = scenario()
        self.assertEqual(scenario() if "" in seen else seen, told)

    def test_sigterm_finishes_what_runs_and_refuses_the_rest(self):
        with Server() as server, grpc.insecure_channel(server.address) as channel:
            stub = gateway_pb2_grpc.GatewayServiceStub(channel)
            stream = stub.GenerateStream(gateway_pb2.GenerateStreamRequest(
                request=request("Describe the shelf.", PICTURE)))
            text = next(stream).text
            server.process.send_signal(signal.SIGTERM)
            text += "".join(event.text for event in stream)
            self.assertTrue(text.strip().startswith("Row 1:"), text)
            self.assertTrue(text.endswith("."), text)
            self.assertEqual(server.process.wait(PATIENCE), 0)
            with self.assertRaises(grpc.RpcError) as caught:
                stub.Generate(request(QUESTION, PICTURE), timeout=PATIENCE)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)

    def test_silent_streams_do_not_hold_the_end(self):
        self.check_told(("DRAINING",), self.silent_stream_at_the_end)

    def silent_stream_at_the_end(self):
        """Why it is ended."""
        with Server("--drain_timeout", "1s") as server, grpc.insecure_channel(server.address) as channel:
            stub = gateway_pb2_grpc.GatewayServiceStub(channel)
            release = threading.Event()

            def silent():
                release.wait(PATIENCE)
                yield gateway_pb2.UploadImageRequest(data=b"late")

            call = stub.UploadImage.future(silent())
            self.assertTrue(stub.GetModelInfo(gateway_pb2.GetModelInfoRequest()).model)
            self.assertEqual(server.terminate(), 0)
            release.set()
            self.assertEqual(call.exception().code(), grpc.StatusCode.UNAVAILABLE)
            return (reason(call.exception()),)

    def test_a_stream_that_only_watches_does_not_hold_the_end(self):
        with Server("--drain_timeout", "1h") as server, grpc.insecure_channel(server.address) as channel:
            watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
            self.assertEqual(next(watch), b"\x08\x01")
            self.assertEqual(server.terminate(), 0)
            with self.assertRaises(grpc.RpcError):
                list(watch)

    def test_a_second_signal_ends_it_at_once(self):
        for first, second in ((signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGINT)):
            with Server("--drain_timeout", "1h") as server, grpc.insecure_channel(server.address) as channel:
                stub = gateway_pb2_grpc.GatewayServiceStub(channel)
                release = threading.Event()
                self.addCleanup(release.set)

                def silent():
                    release.wait(PATIENCE)
                    yield gateway_pb2.UploadImageRequest(data=b"late")

                call = stub.UploadImage.future(silent())
                self.assertTrue(stub.GetModelInfo(gateway_pb2.GetModelInfoRequest()).model)
                server.process.send_signal(first)
                wait_until(lambda: "draining" in server.text(), "it drains")
                self.assertIsNone(server.process.poll(), "the upload holds it")
                server.process.send_signal(second)
                # By the signal itself: a shell tells 128 more than its number, 143 of SIGTERM.
                self.assertEqual(server.process.wait(PATIENCE), -second)
                self.assertEqual(call.exception().code(), grpc.StatusCode.UNAVAILABLE)

    def test_what_outlives_the_drain_is_told_so(self):
        self.check_told(("draining", "DRAINING"), self.long_answers_at_the_end)

    def long_answers_at_the_end(self):
        """Why they are ended, over HTTP and gRPC; empty for one that was whole before."""
        endless = dict(max_tokens=2000, logit_bias={100: 100})
        with Server("--drain_timeout", "1ms") as server, grpc.insecure_channel(server.address) as channel:
            stream = gateway_pb2_grpc.GatewayServiceStub(channel).GenerateStream(
                gateway_pb2.GenerateStreamRequest(request=request("Describe the shelf.", **endless)))
            next(stream)
            asked = urllib.request.Request(
                f"http://{server._told('HTTP')}/v1/chat/completions", headers={"Content-Type": "application/json"},
                data=json.dumps({"messages": [{"role": "user", "content": "Describe the shelf."}], "stream": True,
                                 "max_tokens": 2000, "logit_bias": {"100": 100}}).encode())
            with urllib.request.urlopen(asked, timeout=PATIENCE) as events:
                self.assertIn(b"data:", events.readline())
                server.process.send_signal(signal.SIGTERM)
                over_http = last_error(events)
            over_grpc = ""
            try:
                list(stream)
            except grpc.RpcError as error:
                self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE)
                over_grpc = reason(error)
            self.assertEqual(server.process.wait(PATIENCE), 0)
            return over_http, over_grpc

    def test_until_the_drain_begins_new_work_is_taken_though_it_is_not_ready(self):
        def ready():
            with contextlib.suppress(urllib.error.HTTPError):
                return urllib.request.urlopen(f"http://{server.ops_address}/readyz", timeout=PATIENCE).status == 200

        with Server("--drain_delay", "1h") as server, grpc.insecure_channel(server.address) as channel:
            self.assertTrue(ready())
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: not ready(), "who balances load is told")
            answer = gateway_pb2_grpc.GatewayServiceStub(channel).Generate(
                request(QUESTION, PICTURE), timeout=PATIENCE)
            self.assertEqual(answer.text.strip(), "37")
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(PATIENCE), -signal.SIGTERM)

    def test_cancelled_clients_leave_nothing_behind(self):
        with Server() as server, grpc.insecure_channel(server.address) as channel:
            stub = gateway_pb2_grpc.GatewayServiceStub(channel)
            for i in range(30):
                stream = stub.GenerateStream(gateway_pb2.GenerateStreamRequest(
                    request=request("Describe the shelf.", PICTURE if i % 2 else OTHER)))
                if i % 3:
                    next(stream)
                stream.cancel()
            self.assertEqual(stub.Generate(request(QUESTION, PICTURE), timeout=PATIENCE).text.strip(), "37")
            self.assertEqual(server.terminate(), 0)


class RollingTest(unittest.TestCase):
    RESTARTS = int(os.environ.get("RESTARTS", "3"))  # of the two servers, one after the other
    CLIENTS = 8  # of each kind

    def setUp(self):
        self.lock = threading.Lock()
        self.serving = {}  # gRPC address -> HTTP address: what who balances load knows
        self.done = {"grpc": 0, "http": 0}
        self.lost = []
        self.stop = False

    def pick(self, chooser):
        with self.lock:
            return chooser.choice(sorted(self.serving.items()))

    def count(self, kind, work):
        try:
            work()
        except (OSError, http.client.HTTPException, grpc.RpcError, AssertionError) as error:
            self.lost.append(f"{kind}: {error!r}")
        else:
            with self.lock:
                self.done[kind] += 1

    def http_client(self, seed):
        chooser, kept = random.Random(seed), {}
        body = json.dumps({"messages": [{"role": "user", "content": "What?"}], "max_tokens": 1})
        while not self.stop:
            _, address = self.pick(chooser)
            connection = kept.setdefault(address, http.client.HTTPConnection(address, timeout=PATIENCE))

            def ask():
                connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                answer.read()  # with `connection: close` the next request connects anew
                self.assertEqual(answer.status, 200)

            self.count("http", ask)
            time.sleep(chooser.random() / 20)

    def grpc_client(self, seed):
        chooser, kept = random.Random(seed), {}
        while not self.stop:
            address, _ = self.pick(chooser)
            channel = kept.setdefault(address, grpc.insecure_channel(address))
            stub = gateway_pb2_grpc.GatewayServiceStub(channel)
            self.count("grpc", lambda: stub.Generate(request("What?", max_tokens=1), timeout=PATIENCE))
            time.sleep(chooser.random() / 20)
        for channel in kept.values():
            channel.close()

    def test_pooled_clients_lose_nothing(self):
        with contextlib.ExitStack() as stack:
            servers = []

            def start():
                server = stack.enter_context(Server("--drain_delay", "2s"))
                servers.append(server)
                with self.lock:
                    self.serving[server.address] = server._told("HTTP")

            start()
            start()
            threads = [threading.Thread(target=target, args=(seed,)) for seed in range(self.CLIENTS)
                       for target in (self.http_client, self.grpc_client)]
            for thread in threads:
                thread.start()
            try:
                for _ in range(self.RESTARTS):
                    oldest = servers.pop(0)
                    before = dict(self.done)
                    oldest.process.send_signal(signal.SIGTERM)
                    time.sleep(0.5)  # until who balances load knows
                    with self.lock:
                        del self.serving[oldest.address]
                    self.assertEqual(oldest.process.wait(PATIENCE), 0)
                    start()
                    wait_until(lambda: all(self.done[k] > before[k] + self.CLIENTS for k in before), "clients go on")
            finally:
                self.stop = True
                for thread in threads:
                    thread.join()
        self.assertEqual(self.lost, [])


if __name__ == "__main__":
    unittest.main()
