"""Logs and traces: what a fleet and the one process tell of a request, to a public reader of OTLP."""

import concurrent.futures
import json
import threading
import unittest
import urllib.error
import urllib.request

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1 import trace_pb2

from client import MODEL, OTHER, PATIENCE, PICTURE, QUESTION, gateway_pb2, gateway_pb2_grpc, request
from fleet import Fleet, free_port, wait_until
from harness import Server

SLOW = ("--load_silence", "60s")
TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
ANSWER = "37"
THIRD = (MODEL / "demo" / "shelf2.jpg").read_bytes()
NAMES = {"tessera-gateway", "tessera-vision", "tessera-decode"}


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Takes spans by the public messages."""

    def __init__(self, address="127.0.0.1:0"):
        self.lock = threading.Lock()
        self.taken = []  # (attributes of the resource, span)
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self.server)
        self.address = f"127.0.0.1:{self.server.add_insecure_port(address)}"
        self.server.start()

    def Export(self, asked, context):
        with self.lock:
            for resource in asked.resource_spans:
                who = values(resource.resource.attributes)
                self.taken += [(who, span) for scope in resource.scope_spans for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()

    def of(self, trace):
        """The spans of a trace by service."""
        found = {}
        with self.lock:
            for who, span in self.taken:
                if span.trace_id.hex() == trace:
                    found.setdefault(who["service.name"], []).append(span)
        return found

    def close(self):
        self.server.stop(0).wait()


def values(attributes):
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in attributes}


def servers(spans, method=""):
    return [span for span in spans
            if span.kind == trace_pb2.Span.SPAN_KIND_SERVER and span.name.endswith(method)]


def lines(text, request_id=None):
    """The log's lines in a process's output, of one request; everything that looks like one must be JSON."""
    whole = text[:text.rfind("\n") + 1]  # the last may be half written
    found = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
    return [line for line in found if request_id is None or line.get("request_id") == request_id]


def metadata(request_id, sampled="01", trace=TRACE):
    return [("x-request-id", request_id), ("traceparent", f"00-{trace}-{CALLER}-{sampled}")]


class FleetTracesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.collector = Collector()
        cls.addClassCleanup(cls.collector.close)
        flags = ("--otlp_endpoint", cls.collector.address)
        cls.fleet = Fleet(flags=flags, gateway_flags=(*SLOW, *flags))
        cls.addClassCleanup(cls.fleet.close)
        cls.channel = grpc.insecure_channel(cls.fleet.address)
        cls.addClassCleanup(cls.channel.close)
        cls.stub = gateway_pb2_grpc.GatewayServiceStub(cls.channel)

    def test_one_request_is_one_trace_of_three_services(self):
        # A picture that no other test asks about: vision has to encode it.
        answer = self.stub.Generate(request(QUESTION, OTHER), timeout=PATIENCE,
                                    metadata=metadata("one-trace"))
        wait_until(lambda: NAMES <= set(self.collector.of(TRACE)), "spans of three services")
        found = self.collector.of(TRACE)
        gateway, vision, decode = (servers(found[f"tessera-{service}"], method)[0] for service, method in (
            ("gateway", "/Generate"), ("vision", "/Encode"), ("decode", "/Generate")))
        self.assertEqual(gateway.name, "tessera.v1.GatewayService/Generate")
        self.assertEqual(vision.name, "tessera.v1.VisionService/Encode")
        self.assertEqual(decode.name, "tessera.v1.DecodeService/Generate")
        self.assertEqual(gateway.parent_span_id.hex(), CALLER)
        self.assertEqual(vision.parent_span_id, gateway.span_id)
        self.assertEqual(decode.parent_span_id, gateway.span_id)
        self.assertEqual(len({gateway.span_id, vision.span_id, decode.span_id}), 3)
        self.check_stages(found["tessera-vision"], vision,
                          ["image_decode", "preprocess", "encode", "store"])
        self.check_stages(found["tessera-decode"], decode, ["queue", "prefill", "generation"])
        self.check_attributes(answer, gateway, decode)

    def check_stages(self, spans, parent, expected):
        stages = [s for s in spans if s.parent_span_id == parent.span_id]
        self.assertEqual(len({s.span_id for s in stages}), len(stages))
        self.assertLessEqual(set(expected), {s.name for s in stages})
        for stage in stages:
            self.assertLessEqual(parent.start_time_unix_nano, stage.start_time_unix_nano)
            self.assertLess(stage.start_time_unix_nano, stage.end_time_unix_nano)
            # The parent's end is read from the clock by itself.
            self.assertLessEqual(stage.end_time_unix_nano, parent.end_time_unix_nano)
        order = [s.name for s in sorted(stages, key=lambda s: s.end_time_unix_nano) if s.name in expected]
        self.assertEqual(list(dict.fromkeys(reversed(order)))[::-1], expected)

    def check_attributes(self, answer, gateway, decode):
        facts = values(gateway.attributes)
        self.assertEqual(facts["tessera.request_id"], "one-trace")
        self.assertEqual(facts["rpc.grpc.status_code"], 0)
        self.assertEqual(facts["tessera.cache"], "computed")
        self.assertEqual(facts["gen_ai.usage.input_tokens"], answer.usage.prompt_tokens)
        self.assertEqual(facts["gen_ai.usage.output_tokens"], answer.usage.output_tokens)
        self.assertEqual([event.name for event in gateway.events], ["first_token"])
        self.assertEqual(values(decode.attributes)["gen_ai.usage.output_tokens"], answer.usage.output_tokens)
        with self.collector.lock:
            self.assertEqual({who["tessera.model"] for who, _ in self.collector.taken}, {"tessera"})
        with self.collector.lock:
            texts = [value for _, span in self.collector.taken for value in values(span.attributes).values()]
        self.assertFalse([t for t in texts if isinstance(t, str) and QUESTION in t])
        self.assertNotIn(answer.text.strip(), texts)

    def test_each_service_logs_one_line_with_the_id_and_none_with_the_text(self):
        # What nobody else says, as a word of the question, of the session and of the answer.
        asked = request("Say zebra-in-question.", THIRD, max_tokens=30, logit_bias={100: 100})
        asked.session = "zebra-in-session"
        answer = self.stub.Generate(asked, timeout=PATIENCE, metadata=metadata("log-lines", "00"))
        self.assertGreater(len(answer.text.strip()), 20)  # a short one may be anywhere
        processes = {"gateway": self.fleet.gateway, "vision": self.fleet.vision[0],
                     "decode": self.fleet.decode[0]}
        asked_of = {"gateway": "Generate", "decode": "Generate", "vision": "Encode"}
        wait_until(lambda: lines(processes["gateway"].text(), "log-lines") and
                   lines(processes["decode"].text(), "log-lines"), "the lines of the request")
        for service, process in processes.items():
            # Decode may have been quicker than Redis, and have asked vision for the rows.
            found = [line for line in lines(process.text(), "log-lines") if line["method"] != "GetRecord"]
            self.assertEqual(len(found), 1, process.text())
            line = found[0]
            self.assertEqual((line["service"], line["event"], line["method"], line["code"]),
                             (service, "request", asked_of[service], "OK"))
            self.assertEqual((line["level"], line["trace_id"]), ("info", TRACE))
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertGreater(line["seconds"], 0)
            self.assertNotIn("zebra", process.text())
            self.assertNotIn(answer.text.strip(), process.text())
        line = lines(processes["gateway"].text(), "log-lines")[0]
        self.assertEqual(line["output_tokens"], answer.usage.output_tokens)
        self.assertEqual(line["replica"], self.fleet.decode[0].address)

    def test_rows_that_are_read_of_vision_are_part_of_the_trace(self):
        self.fleet.redis.kill()
        self.addCleanup(self.fleet.redis.start)
        trace = "3" * 32
        self.stub.Generate(request(QUESTION, PICTURE + b"read of its origin"), timeout=PATIENCE, metadata=[
            ("x-request-id", "origin"), ("traceparent", f"00-{trace}-{CALLER}-01")])

        def spans(service, method):
            return servers(self.collector.of(trace).get(f"tessera-{service}", []), method)

        wait_until(lambda: spans("vision", "/GetRecord") and spans("decode", "/Generate"), "both spans")
        self.assertEqual([span.parent_span_id for span in spans("vision", "/GetRecord")],
                         [span.span_id for span in spans("decode", "/Generate")])
        said = sorted(line["method"] for line in lines(self.fleet.vision[0].text(), "origin"))
        self.assertEqual(said, ["Encode", "GetRecord"])

    def test_reading_ahead_is_part_of_the_uploads_trace(self):
        trace = "4" * 32
        self.stub.UploadImage(
            iter([gateway_pb2.UploadImageRequest(session="ahead", data=PICTURE + b"uploaded")]), timeout=PATIENCE,
            metadata=[("x-request-id", "ahead"), ("traceparent", f"00-{trace}-{CALLER}-01")])

        def found(service, method):
            return servers(self.collector.of(trace).get(f"tessera-{service}", []), method)

        wait_until(lambda: found("decode", "/Prefill") and found("gateway", "/UploadImage"), "both spans")
        self.assertEqual(found("decode", "/Prefill")[0].parent_span_id, found("gateway", "/UploadImage")[0].span_id)
        line, = (line for line in lines(self.fleet.decode[0].text(), "ahead"))
        self.assertEqual((line["event"], line["method"], line["code"]), ("request", "Prefill", "OK"))

    def test_every_end_is_one_line(self):
        def ids():
            return [line["request_id"] for line in lines(self.fleet.gateway.text())
                    if line.get("event") == "request" and line["request_id"].startswith("end-")]

        self.stub.UploadImage(iter([gateway_pb2.UploadImageRequest(data=PICTURE)]), timeout=PATIENCE,
                              metadata=[("x-request-id", "end-upload")])
        list(self.stub.GenerateStream(gateway_pb2.GenerateStreamRequest(request=request(QUESTION)),
                                      timeout=PATIENCE, metadata=[("x-request-id", "end-stream")]))
        with self.assertRaises(grpc.RpcError):
            self.stub.Generate(request(QUESTION, b"secret, no picture"), timeout=PATIENCE,
                               metadata=[("x-request-id", "end-bad")])
        address = next(line.split()[1] for line in self.fleet.gateway.text().splitlines()
                       if line.split()[:1] == ["HTTP"])
        for name, body, kind in (("end-http", {"messages": [{"role": "user", "content": "zebra?"}]}, "application/json"),
                                 ("end-http-bad", {"messages": "zebra"}, "application/json"),
                                 ("end-http-refused", {}, "text/plain")):
            ask = urllib.request.Request(f"http://{address}/v1/chat/completions?zebra=1", json.dumps(body).encode(),
                                         {"Content-Type": kind, "x-request-id": name})
            try:
                urllib.request.urlopen(ask, timeout=PATIENCE).close()
            except urllib.error.HTTPError as error:
                error.close()
        expected = {"end-upload", "end-stream", "end-bad", "end-http", "end-http-bad", "end-http-refused"}
        wait_until(lambda: expected <= set(ids()), "a line for each")
        self.assertEqual(sorted(ids()), sorted(expected))
        by_id = {line["request_id"]: line for line in lines(self.fleet.gateway.text()) if "request_id" in line}
        self.assertEqual(by_id["end-upload"]["method"], "UploadImage")
        self.assertEqual(by_id["end-stream"]["method"], "GenerateStream")
        self.assertEqual(by_id["end-bad"]["code"], "INVALID_ARGUMENT")
        self.assertEqual((by_id["end-http"]["method"], by_id["end-http"]["protocol"]), ("ChatCompletions", "http"))
        self.assertEqual(by_id["end-http-bad"]["code"], "INVALID_ARGUMENT")
        self.assertEqual(by_id["end-http-refused"]["http_status"], 415)
        for secret in ("zebra", "secret, no picture"):
            self.assertNotIn(secret, self.fleet.gateway.text())

    def test_what_is_not_sampled_is_not_exported_and_a_bad_header_begins_a_trace(self):
        other = "1" * 32
        self.stub.Generate(request(QUESTION), timeout=PATIENCE, metadata=[
            ("x-request-id", "unsampled"), ("traceparent", f"00-{other}-{CALLER}-00")])
        self.stub.Generate(request(QUESTION), timeout=PATIENCE, metadata=[
            ("x-request-id", "bad-header"), ("traceparent", f"00-{'2' * 32}-{'0' * 16}-01")])
        wait_until(lambda: lines(self.fleet.gateway.text(), "bad-header"), "the line")
        begun = lines(self.fleet.gateway.text(), "bad-header")[0]["trace_id"]
        wait_until(lambda: {"tessera-gateway", "tessera-decode"} <= set(self.collector.of(begun)),
                   "the spans of a trace that began here")
        self.assertEqual(servers(self.collector.of(begun)["tessera-gateway"])[0].parent_span_id, b"")
        self.assertNotEqual(begun, "2" * 32)
        self.assertEqual(self.collector.of(other), {})


class OneProcessTracesTest(unittest.TestCase):
    def test_serve_exports_three_services_and_sends_the_rest_at_its_end(self):
        collector = Collector()
        self.addCleanup(collector.close)
        with Server("--otlp_endpoint", collector.address) as server, \
                grpc.insecure_channel(server.address) as channel:
            stub = gateway_pb2_grpc.GatewayServiceStub(channel)
            earlier = "5" * 32  # then it is connected: at its end it does not wait for that
            stub.Generate(request(QUESTION, OTHER), timeout=PATIENCE, metadata=metadata("earlier", trace=earlier))
            wait_until(lambda: set(collector.of(earlier)) == NAMES, "the earlier trace")
            stub.Generate(request(QUESTION, PICTURE), timeout=PATIENCE, metadata=metadata("serve"))
            server.process.terminate()
            self.assertEqual(server.process.wait(PATIENCE), 0)
            found = [line for line in lines(server.text(), "serve")]
        self.assertEqual(sorted(line["service"] for line in found), ["decode", "gateway", "vision"])
        self.assertEqual(set(collector.of(TRACE)), NAMES)

    def test_without_a_collector_requests_are_answered_and_spans_are_dropped(self):
        with Server("--otlp_endpoint", f"127.0.0.1:{free_port()}") as server, \
                grpc.insecure_channel(server.address) as channel:
            stub = gateway_pb2_grpc.GatewayServiceStub(channel)

            def dropped():
                with urllib.request.urlopen(f"http://{server.ops_address}/metrics", timeout=PATIENCE) as page:
                    text = page.read().decode()
                return next(float(line.split()[-1]) for line in text.splitlines()
                            if line.startswith("tessera_trace_spans_dropped_total{"))

            self.assertEqual(dropped(), 0)
            for _ in range(3):
                self.assertEqual(stub.Generate(request(QUESTION, PICTURE), timeout=PATIENCE).text.strip(), ANSWER)
            wait_until(lambda: dropped() > 0, "spans are dropped")
            said = [line for line in lines(server.text()) if line["message"].startswith("traces:")]
            self.assertEqual(len(said), 1, said)
            self.assertEqual(said[0]["level"], "warning")


if __name__ == "__main__":
    unittest.main()
