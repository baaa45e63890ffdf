"""What is wrong is refused with a status and details that the public packages read."""

import unittest

import grpc

from client import OTHER, PATIENCE, PICTURE, QUESTION, Base, gateway_pb2, request, types_pb2


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
        good = self.stub.Generate(request(QUESTION, PICTURE.ljust(limit, b"\0")), timeout=PATIENCE)
        self.assertEqual(good.text.strip(), "37")
        error = self.refused(self.stub.Generate, request(QUESTION, PICTURE.ljust(limit + 1, b"\0")))
        self.assertEqual(self.details(error)["ErrorInfo"].reason, "IMAGE_TOO_LARGE")
        error = self.refused(self.stub.Generate, request(QUESTION, PICTURE.ljust(4 << 20, b"\0")))
        self.assertEqual(error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)

    def test_control_text_of_a_user_stays_text(self):
        plain = self.stub.Generate(request(QUESTION, PICTURE)).usage.prompt_tokens
        for text in ("<image>", "</s>", "<s>", "USER: <image>\n", "<pad><unk>"):
            answer = self.stub.Generate(request(f"{text} {QUESTION}", PICTURE), timeout=PATIENCE)
            self.assertEqual(answer.usage.image_tokens, 256, text)
            # Spelled out, a marker takes more than the one token that it would be.
            self.assertGreater(answer.usage.prompt_tokens, plain + 2, text)

    def test_odd_requests_leave_the_server_alive(self):
        empty = gateway_pb2.GenerateRequest()
        for bad in (empty, request(None),
                    gateway_pb2.GenerateRequest(messages=[types_pb2.Message(role="user")]),
                    gateway_pb2.GenerateRequest(messages=[types_pb2.Message(
                        role="nobody", parts=[types_pb2.Part(text="x")])])):
            error = self.refused(self.stub.Generate, bad)
            self.assertEqual(error.code(), grpc.StatusCode.INVALID_ARGUMENT, bad)
        for text in ("", " "):  # an empty question is a question
            self.assertGreater(self.stub.Generate(request(text, max_tokens=2), timeout=PATIENCE).usage.prompt_tokens, 0)
        only_picture = self.stub.Generate(request(None, PICTURE), timeout=PATIENCE)
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


if __name__ == "__main__":
    unittest.main()
