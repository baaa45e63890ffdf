"""Answers and operations, by the public gRPC packages."""

import math
import unittest

from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from client import MODEL, OTHER, PICTURE, QUESTION, Base, gateway_pb2, request, types_pb2
from harness import run


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
        self.assertGreaterEqual(len(events), 2)  # the text and its end: how many pieces are joined is luck

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


if __name__ == "__main__":
    unittest.main()
