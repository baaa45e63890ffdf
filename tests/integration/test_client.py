"""A running server and the public gRPC packages."""

import math
import signal
import threading
import unittest

import grpc
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_status import rpc_status

from harness import MODEL, ROOT, Server, generate_stubs, run

generate_stubs()
from tessera.v1 import gateway_pb2, gateway_pb2_grpc, types_pb2  # noqa: E402

PICTURE = (MODEL / "demo" / "shelf1.jpg").read_bytes()
OTHER = (MODEL / "demo" / "shelf3.jpg").read_bytes()
QUESTION = "What is the price on row 2?"


def request(text, *pictures, handle=None, **options):
    parts = [types_pb2.Part(image=types_pb2.Image(inline_data=types_pb2.InlineData(data=p)))
             for p in pictures]
    if handle:
        parts.append(types_pb2.Part(image=types_pb2.Image(handle=handle)))
    if text is not None:
        parts.append(types_pb2.Part(text=text))
    return gateway_pb2.GenerateRequest(
        messages=[types_pb2.Message(role="user", parts=parts)],
        options=types_pb2.GenerationOptions(**options))


class Base(unittest.TestCase):
    flags = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.flags)
        cls.channel = grpc.insecure_channel(
            cls.server.address, options=[("grpc.max_send_message_length", -1)])
        cls.stub = gateway_pb2_grpc.GatewayServiceStub(cls.channel)

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        cls.server.__exit__()

    def refused(self, call, *args):
        with self.assertRaises(grpc.RpcError) as caught:
            call(*args, timeout=60)
        return caught.exception

    def details(self, error):
        found = {}
        status = rpc_status.from_call(error)
        for any_message in status.details if status else ():
            for kind in (error_details_pb2.ErrorInfo, error_details_pb2.RetryInfo,
                         error_details_pb2.BadRequest, error_details_pb2.ResourceInfo):
                message = kind()
                if any_message.Unpack(message):
                    found[kind.__name__] = message
        return found


class AnswerTest(Base):
    def test_the_second_question_costs_no_picture(self):
        first = self.stub.Generate(request("What is the price on row 3?", OTHER))
        second = self.stub.Generate(request(QUESTION, OTHER))
        self.assertEqual(second.text.strip(), "25")
        self.assertEqual(first.receipt.images[0].cache, types_pb2.CACHE_TIER_COMPUTED)
        self.assertGreater(first.receipt.stages.encode_seconds, 0)
        self.assertIn(second.receipt.images[0].cache,
                      (types_pb2.CACHE_TIER_LOCAL, types_pb2.CACHE_TIER_PREFIX_KV))
        for stage in ("image_decode_seconds", "preprocess_seconds", "encode_seconds"):
            self.assertEqual(getattr(second.receipt.stages, stage), 0)

    def test_streamed_text_is_the_unary_text(self):
        question = request("请描述这个货架。", (MODEL / "demo" / "shelf2.jpg").read_bytes())
        unary = self.stub.Generate(question)
        events = list(self.stub.GenerateStream(gateway_pb2.GenerateStreamRequest(request=question)))
        self.assertEqual("".join(e.text for e in events), unary.text)
        self.assertEqual([e.HasField("end") for e in events], [False] * (len(events) - 1) + [True])
        self.assertGreater(len(events), 5)

    def test_eight_at_once_get_what_they_get_alone(self):
        questions = [request(f"What is in row {1 + i % 3}, column {1 + i // 3}?", PICTURE)
                     for i in range(8)]
        alone = [self.stub.Generate(q).text for q in questions]
        together = [f.result() for f in [self.stub.Generate.future(q) for q in questions]]
        self.assertEqual([r.text for r in together], alone)

    def test_seeded_draws_repeat(self):
        ask = request("Describe the shelf.", PICTURE, temperature=1.5, seed=7, max_tokens=40)
        self.assertEqual(self.stub.Generate(ask).text, self.stub.Generate(ask).text)

    def test_max_tokens_and_stop(self):
        short = self.stub.Generate(request("Describe the shelf.", PICTURE, max_tokens=3))
        self.assertEqual(short.usage.output_tokens, 3)
        self.assertEqual(short.finish_reason, types_pb2.FINISH_REASON_LENGTH)
        whole = self.stub.Generate(request("Describe the shelf.", PICTURE)).text
        stopped = self.stub.Generate(request("Describe the shelf.", PICTURE, stop=["Row 2"]))
        self.assertEqual(stopped.text, whole.split("Row 2")[0])
        self.assertEqual(stopped.stop_reason, "Row 2")

    def test_log_probabilities_of_every_token(self):
        ask = request(QUESTION, PICTURE, top_logprobs=5)
        answer = self.stub.Generate(ask)
        self.assertEqual(len(answer.logprobs), answer.usage.output_tokens)
        self.assertEqual(b"".join(t.chosen.token for t in answer.logprobs).decode(), answer.text)
        for token in answer.logprobs:
            self.assertEqual(len(token.top), 5)
            self.assertEqual(token.top[0], token.chosen)  # greedy
            chances = [rival.logprob for rival in token.top]
            self.assertEqual(chances, sorted(chances, reverse=True))
            self.assertLessEqual(sum(map(math.exp, chances)), 1 + 1e-4)
        events = list(self.stub.GenerateStream(gateway_pb2.GenerateStreamRequest(request=ask)))
        streamed = [t for event in events for t in event.logprobs]
        self.assertEqual([t.chosen.id for t in streamed], [t.chosen.id for t in answer.logprobs])
        plain = self.stub.Generate(request(QUESTION, PICTURE))
        self.assertEqual((plain.text, len(plain.logprobs)), (answer.text, 0))

    def test_penalties_and_bias_change_what_is_chosen(self):
        def ids(**options):
            answer = self.stub.Generate(request("Describe the shelf.", PICTURE, max_tokens=40,
                                                top_logprobs=0, **options))
            return [token.chosen.id for token in answer.logprobs]

        plain = ids()
        self.assertEqual(ids(frequency_penalty=0, presence_penalty=0, repetition_penalty=1), plain)
        self.assertNotIn(plain[0], ids(logit_bias={plain[0]: -100}))
        self.assertEqual(ids(logit_bias={100: 100}), [100] * 40)
        # Two tokens far ahead of all others: each use of one is to the other's advantage.
        two = {"logit_bias": {100: 100, 101: 100}}
        self.assertEqual(set(ids(frequency_penalty=2, **two)), {100, 101})
        first, second = ids(repetition_penalty=10, **two)[:2]
        self.assertEqual({first, second}, {100, 101})
        self.assertEqual(len(ids(presence_penalty=2, **two)), 40)

    def test_an_upload_with_a_session_is_read_ahead(self):
        picture = (MODEL / "eval" / "pictures" / "043.jpg").read_bytes()
        upload = self.stub.UploadImage(iter([gateway_pb2.UploadImageRequest(session="s", data=picture)]))
        # Whether it was read in time is not for this test to say: other answers tell nothing of it.
        answer = self.stub.Generate(request("Describe the shelf.", handle=upload.handle))
        self.assertEqual(answer.text, self.stub.Generate(request("Describe the shelf.", picture)).text)
        long = iter([gateway_pb2.UploadImageRequest(session="s" * 257, data=picture)])
        error = self.refused(self.stub.UploadImage, long)
        self.assertEqual(self.details(error)["BadRequest"].field_violations[0].field, "session")

    def test_upload_then_ask(self):
        picture = (MODEL / "eval" / "pictures" / "042.jpg").read_bytes()
        chunks = (gateway_pb2.UploadImageRequest(data=picture[i:i + 1000])
                  for i in range(0, len(picture), 1000))
        upload = self.stub.UploadImage(chunks)
        by_handle = self.stub.Generate(request("Describe the shelf.", handle=upload.handle))
        by_bytes = self.stub.Generate(request("Describe the shelf.", picture))
        self.assertEqual(by_handle.text, by_bytes.text)
        self.assertEqual(by_bytes.receipt.stages.encode_seconds, 0)

    def test_model_info(self):
        info = self.stub.GetModelInfo(gateway_pb2.GetModelInfoRequest())
        self.assertEqual((info.model, info.family, info.rows_per_image), ("shelf-vqa", "llava", 256))


class ErrorTest(Base):
    flags = ("--max_image_bytes", "2MiB", "--max_message_bytes", "3MiB")

    def test_details_read_with_the_public_packages(self):
        error = self.refused(self.stub.Generate, request(QUESTION, b"not a picture"))
        self.assertEqual(error.code(), grpc.StatusCode.INVALID_ARGUMENT)
        details = self.details(error)
        self.assertEqual(details["ErrorInfo"].reason, "IMAGE_FORMAT")
        self.assertEqual(details["ErrorInfo"].domain, "tessera")
        self.assertEqual(details["BadRequest"].field_violations[0].field, "messages[0].parts[0].image")

    def test_a_fault_names_its_place(self):
        def turn(role, *parts):
            return types_pb2.Message(role=role, parts=parts)

        def text(words):
            return types_pb2.Part(text=words)

        picture = request(None, PICTURE).messages[0].parts[0]
        for turns, field, reason in [
                ([turn("nobody", text("x"))], "messages[0].role", "UNSUPPORTED_ROLE"),
                ([turn("user", text("x")), turn("assistant", text("y"), picture), turn("user", text("z"))],
                 "messages[1].parts[1].image", "IMAGE_NOT_SUPPORTED"),
                ([turn("system", picture, text("y")), turn("user", text("z"))],
                 "messages[0].parts[0].image", "IMAGE_NOT_SUPPORTED"),
                ([turn("user", text("x"), text("y" * (2 << 20)))],
                 "messages[0].parts[1].text", "CONTEXT_TOO_LONG")]:
            error = self.refused(self.stub.Generate, gateway_pb2.GenerateRequest(messages=turns))
            self.assertEqual(error.code(), grpc.StatusCode.INVALID_ARGUMENT)
            details = self.details(error)
            self.assertEqual(details["ErrorInfo"].reason, reason, error.details())
            self.assertEqual(details["BadRequest"].field_violations[0].field, field)
            self.assertIn(field, error.details())

    def test_every_wrong_parameter_names_its_field(self):
        for options, field in [({"top_p": 7}, "options.top_p"), ({"temperature": -1}, "options.temperature"),
                               ({"temperature": float("nan")}, "options.temperature"),
                               ({"max_tokens": 0}, "options.max_tokens"),
                               ({"n": 2}, "options.n"), ({"top_logprobs": 6}, "options.top_logprobs"),
                               ({"frequency_penalty": 3}, "options.frequency_penalty"),
                               ({"repetition_penalty": float("nan")}, "options.repetition_penalty"),
                               ({"logit_bias": {7: 101}}, "options.logit_bias[7]"),
                               ({"logit_bias": {1 << 20: 1}}, "options.logit_bias"),
                               ({"stop": [""]}, "options.stop[0]")]:
            error = self.refused(self.stub.Generate, request(QUESTION, PICTURE, **options))
            self.assertEqual(error.code(), grpc.StatusCode.INVALID_ARGUMENT)
            self.assertEqual(self.details(error)["BadRequest"].field_violations[0].field, field)

    def test_unknown_model_and_handle_are_not_found(self):
        other = request(QUESTION, PICTURE)
        other.model = "gpt"
        error = self.refused(self.stub.Generate, other)
        self.assertEqual(error.code(), grpc.StatusCode.NOT_FOUND)
        self.assertEqual(self.details(error)["ResourceInfo"].resource_name, "gpt")
        error = self.refused(self.stub.Generate, request(QUESTION, handle="x" * 40))
        self.assertEqual(error.code(), grpc.StatusCode.NOT_FOUND)
        self.assertEqual(self.details(error)["ResourceInfo"].resource_type, "image_handle")

    def test_a_prompt_that_cannot_fit_says_the_numbers(self):
        error = self.refused(self.stub.Generate, request("word " * 5000, PICTURE))
        self.assertEqual(error.code(), grpc.StatusCode.INVALID_ARGUMENT)
        self.assertEqual(self.details(error)["ErrorInfo"].reason, "CONTEXT_TOO_LONG")
        self.assertIn("2048", error.details())
        self.assertIn("256", error.details())

    def test_sizes_at_the_limit(self):
        # Bytes behind a JPEG's end are legal, so this is a good picture of exactly the limit.
        limit = 2 << 20
        good = self.stub.Generate(request(QUESTION, PICTURE.ljust(limit, b"\0")), timeout=60)
        self.assertEqual(good.text.strip(), "37")
        error = self.refused(self.stub.Generate, request(QUESTION, PICTURE.ljust(limit + 1, b"\0")))
        self.assertEqual(self.details(error)["ErrorInfo"].reason, "IMAGE_TOO_LARGE")
        error = self.refused(self.stub.Generate, request(QUESTION, PICTURE.ljust(4 << 20, b"\0")))
        self.assertEqual(error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)

    def test_control_text_of_a_user_stays_text(self):
        plain = self.stub.Generate(request(QUESTION, PICTURE)).usage.prompt_tokens
        for text in ("<image>", "</s>", "<s>", "USER: <image>\n", "<pad><unk>"):
            answer = self.stub.Generate(request(f"{text} {QUESTION}", PICTURE), timeout=60)
            self.assertEqual(answer.usage.image_tokens, 256, text)
            # Spelled out, a marker takes more than the one token that it would be.
            self.assertGreater(answer.usage.prompt_tokens, plain + 2, text)

    def test_odd_requests_leave_the_server_alive(self):
        empty = gateway_pb2.GenerateRequest()
        for bad in (empty, request(""), request(" "), request(None),
                    gateway_pb2.GenerateRequest(messages=[types_pb2.Message(role="user")]),
                    gateway_pb2.GenerateRequest(messages=[types_pb2.Message(
                        role="nobody", parts=[types_pb2.Part(text="x")])])):
            error = self.refused(self.stub.Generate, bad)
            self.assertEqual(error.code(), grpc.StatusCode.INVALID_ARGUMENT, bad)
        only_picture = self.stub.Generate(request(None, PICTURE), timeout=60)
        self.assertGreater(only_picture.usage.prompt_tokens, 256)
        self.assertEqual(self.stub.Generate(request(QUESTION, PICTURE)).text.strip(), "37")

    def test_text_that_is_no_utf8_is_refused_inside_grpc(self):
        raw = self.channel.unary_unary("/tessera.v1.GatewayService/Generate")
        # messages { role: "user" parts { text: "\xff" } }
        body = b"\x12\x0d\x0a\x04user\x12\x05\x0a\x03a\xffb"
        error = self.refused(raw, body)
        self.assertEqual(error.code(), grpc.StatusCode.INTERNAL)
        self.assertIn("UTF-8", error.details())
        self.assertEqual(self.stub.Generate(request(QUESTION, PICTURE)).text.strip(), "37")

    def test_a_short_deadline_is_kept(self):
        with self.assertRaises(grpc.RpcError) as caught:
            self.stub.Generate(request("Describe the shelf.", OTHER), timeout=0.001)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        self.assertEqual(self.stub.Generate(request(QUESTION, PICTURE)).text.strip(), "37")


class MemoryTest(Base):
    flags = ("--kv_cache_bytes", "8MiB")

    def resident(self):
        with open(f"/proc/{self.server.process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))

    def test_calls_leave_nothing_behind(self):
        too_long = request("a " * 3000)

        def refuse():
            with self.assertRaises(grpc.RpcError):
                self.stub.Generate(too_long)

        calls = {
            "answer": lambda: self.stub.Generate(request("hello", max_tokens=1)),
            "refusal": refuse,
            "upload": lambda: self.stub.UploadImage(iter([gateway_pb2.UploadImageRequest(data=PICTURE)])),
        }
        for name, call in calls.items():
            for _ in range(200):
                call()
            before = self.resident()
            for _ in range(400):
                call()
            # What one call may keep is far below the 30 kB that a lost call object takes.
            self.assertLess((self.resident() - before) / 400, 16, name)


class UploadMemoryTest(Base):
    flags = ("--max_upload_bytes", "16MiB", "--max_image_bytes", "8MiB")

    resident = MemoryTest.resident

    def test_uploads_that_never_end_hold_no_more_than_their_budget(self):
        release = threading.Event()

        def unfinished():
            for _ in range(8):
                yield gateway_pb2.UploadImageRequest(data=b"x" * (1 << 20))
            release.wait(60)

        self.stub.UploadImage(iter([gateway_pb2.UploadImageRequest(data=PICTURE)]))
        before = self.resident()
        calls = [self.stub.UploadImage.future(unfinished()) for _ in range(60)]  # 480 MiB in all
        refused = threading.Semaphore(0)
        for call in calls:
            call.add_done_callback(lambda _: refused.release())
        try:
            # The budget holds two of them; all others are told to come again.
            for _ in range(58):
                self.assertTrue(refused.acquire(timeout=60))
            # The budget, its copies, and of each call the message of 1 MiB that it had on its way.
            self.assertLess((self.resident() - before) / 1024, 240)
        finally:
            release.set()
            for call in calls:
                call.cancel()
        codes = {call.code() for call in calls}
        self.assertEqual(codes, {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED})
        self.assertEqual(self.stub.Generate(request(QUESTION, PICTURE), timeout=60).text.strip(), "37")


class OperationsTest(Base):
    def test_health_of_every_name(self):
        health = health_pb2_grpc.HealthStub(self.channel)
        for name in ("", "liveness", "readiness", "tessera.v1.GatewayService"):
            answer = health.Check(health_pb2.HealthCheckRequest(service=name))
            self.assertEqual(answer.status, health_pb2.HealthCheckResponse.SERVING, name)

    def test_reflection_lists_the_services(self):
        services = ProtoReflectionDescriptorDatabase(self.channel).get_services()
        self.assertIn("tessera.v1.GatewayService", services)
        self.assertIn("grpc.health.v1.Health", services)

    def test_a_taken_port_is_an_error_at_start(self):
        code, _, err = run("serve", "--model", MODEL, "--grpc_address", self.server.address)
        self.assertEqual(code, 1)
        self.assertIn(self.server.address, err)


class DrainTest(unittest.TestCase):
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
            self.assertEqual(server.process.wait(60), 0)
            with self.assertRaises(grpc.RpcError) as caught:
                stub.Generate(request(QUESTION, PICTURE), timeout=5)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)

    def test_silent_streams_do_not_hold_the_end(self):
        with Server("--drain_timeout", "1s") as server, grpc.insecure_channel(server.address) as channel:
            stub = gateway_pb2_grpc.GatewayServiceStub(channel)
            release = threading.Event()

            def silent():
                release.wait(30)
                yield gateway_pb2.UploadImageRequest(data=b"late")

            call = stub.UploadImage.future(silent())
            self.assertTrue(stub.GetModelInfo(gateway_pb2.GetModelInfoRequest()).model)
            self.assertEqual(server.terminate(30), 0)
            release.set()
            self.assertEqual(call.exception().code(), grpc.StatusCode.UNAVAILABLE)

    def test_cancelled_clients_leave_nothing_behind(self):
        with Server() as server, grpc.insecure_channel(server.address) as channel:
            stub = gateway_pb2_grpc.GatewayServiceStub(channel)
            for i in range(30):
                stream = stub.GenerateStream(gateway_pb2.GenerateStreamRequest(
                    request=request("Describe the shelf.", PICTURE if i % 2 else OTHER)))
                if i % 3:
                    next(stream)
                stream.cancel()
            self.assertEqual(stub.Generate(request(QUESTION, PICTURE), timeout=60).text.strip(), "37")
            self.assertEqual(server.terminate(), 0)


if __name__ == "__main__":
    unittest.main()
