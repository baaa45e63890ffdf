"""What odd requests come to, over gRPC and HTTP: one table for both, and behind each case a good answer."""

import base64
import http.client
import json
import unittest

import grpc

from client import PATIENCE, PICTURE, QUESTION, Base, gateway_pb2, types_pb2
from harness import MODEL

VOCABULARY = json.loads((MODEL / "config.json").read_text())["text_config"]["vocab_size"]
ANSWERED = None  # in the place of a field to blame
URL = "data:image/jpeg;base64," + base64.b64encode(PICTURE).decode()
TEXT = [{"role": "user", "content": QUESTION}]


def part(kind):
    """A part of a message in both languages."""
    if kind is PICTURE:
        image = types_pb2.Image(inline_data=types_pb2.InlineData(data=PICTURE))
        return types_pb2.Part(image=image), {"type": "image_url", "image_url": {"url": URL}}
    return types_pb2.Part(text=kind), {"type": "text", "text": kind}


# Name; turns of (role, parts); the field that gRPC and HTTP blame, or ANSWERED. FAULTS B083.
PROMPTS = [
    ("an empty question", [("user", [""])], ANSWERED, ANSWERED),
    ("a space", [("user", [" "])], ANSWERED, ANSWERED),
    ("white space alone", [("user", ["\n\t \u00a0"])], ANSWERED, ANSWERED),
    ("a picture alone", [("user", [PICTURE])], ANSWERED, ANSWERED),
    ("a picture and an empty question", [("user", [PICTURE, ""])], ANSWERED, ANSWERED),
    ("an empty system message", [("system", [""]), ("user", [QUESTION])], ANSWERED, ANSWERED),
    ("an empty answer before", [("user", ["a"]), ("assistant", [""]), ("user", ["b"])], ANSWERED, ANSWERED),
    ("no messages", [], "messages", "messages"),
    ("a message without parts", [("user", [])], "messages[0].parts", "messages[0].content"),
    ("the second without parts", [("user", ["a"]), ("assistant", ["b"]), ("user", [])],
     "messages[2].parts", "messages[2].content"),
    # OpenAI's API has a question in every request; over gRPC the template alone says what is one.
    ("the system alone", [("system", ["Be brief."])], ANSWERED, "messages"),
]

# Name, value; the field that gRPC blames (ABSENT: it cannot be said there), that HTTP does. FAULTS B084.
ABSENT = "absent"
OPTIONS = [
    ("max_tokens", 0, "options.max_tokens", "max_tokens"),
    ("max_tokens", -1, ABSENT, "max_tokens"),
    ("top_k", -5, ABSENT, "top_k"),
    ("top_k", 0, ANSWERED, ANSWERED),
    ("top_k", 10**7, ANSWERED, ANSWERED),
    ("top_k", 2**31 - 1, ANSWERED, ANSWERED),
    ("top_k", 2**32, ABSENT, "top_k"),
    ("top_p", 0, "options.top_p", "top_p"),
    ("top_p", 7, "options.top_p", "top_p"),
    ("top_p", 1e-9, ANSWERED, ANSWERED),
    ("min_p", 2, "options.min_p", "min_p"),
    ("temperature", -1, "options.temperature", "temperature"),
    ("temperature", 1e-9, ANSWERED, ANSWERED),
    ("n", 0, "options.n", "n"),
    ("n", 10**6, "options.n", "n"),
    ("n", 1, ANSWERED, ANSWERED),
    ("stop", ["x"] * 10**5, "options.stop", "stop"),
    ("stop", [""], "options.stop[0]", "stop[0]"),
    ("logit_bias", {-1: 1}, ABSENT, "logit_bias"),
    ("logit_bias", {VOCABULARY - 1: 1}, ANSWERED, ANSWERED),
    ("logit_bias", {VOCABULARY: 1}, "options.logit_bias", "logit_bias"),
    ("logit_bias", {2**31: 1}, "options.logit_bias", "logit_bias"),
    ("logit_bias", {2**32: 1}, ABSENT, "logit_bias"),
    ("logit_bias", {i: 1 for i in range(1025)}, "options.logit_bias", "logit_bias"),
    ("frequency_penalty", 2.5, "options.frequency_penalty", "frequency_penalty"),
    ("presence_penalty", -2.5, "options.presence_penalty", "presence_penalty"),
    ("repetition_penalty", 0, "options.repetition_penalty", "repetition_penalty"),
]


class VerdictsTest(Base):
    flags = ("--http_address", "127.0.0.1:0")

    def over_grpc(self, turns, **options):
        """The text, or the field that is blamed."""
        options.setdefault("max_tokens", 4)
        asked = gateway_pb2.GenerateRequest(
            messages=[types_pb2.Message(role=role, parts=[part(p)[0] for p in parts]) for role, parts in turns],
            options=types_pb2.GenerationOptions(**options))
        try:
            return self.stub.Generate(asked, timeout=PATIENCE).text, ANSWERED
        except grpc.RpcError as error:
            self.assertEqual(error.code(), grpc.StatusCode.INVALID_ARGUMENT, error.details())
            found = self.details(error)
            self.assertRegex(found["ErrorInfo"].reason, "^[A-Z0-9_]+$")
            field = found["BadRequest"].field_violations[0].field
            self.assertIn(field, error.details())
            return None, field

    def over_http(self, turns, stream=False, **options):
        options.setdefault("max_tokens", 4)
        body = {"model": "shelf-vqa", "stream": stream, **options,
                "messages": [{"role": role, "content": [part(p)[1] for p in parts]} for role, parts in turns]}
        connection = http.client.HTTPConnection(self.server._told("HTTP"), timeout=PATIENCE)
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status == 200:
            if stream:
                self.assertTrue(text.endswith("data: [DONE]\n\n"), text)
                return text, ANSWERED
            return json.loads(text)["choices"][0]["message"]["content"], ANSWERED
        self.assertEqual(answer.status, 400, text)
        error = json.loads(text)["error"]
        self.assertEqual(error["type"], "invalid_request_error")
        self.assertTrue(error["code"], text)
        return None, error["param"]

    def check_alive(self, behind):
        good = [("user", [PICTURE, QUESTION])]
        self.assertEqual(self.over_grpc(good)[0], " 37", behind)
        self.assertEqual(self.over_http(good)[0], " 37", behind)

    def blames(self, told, wanted, name):
        """`told` is the field `wanted`, or one within it."""
        within = told is not None and wanted is not None and told.startswith((wanted + "[", wanted + "."))
        self.assertTrue(told == wanted or within, (name, told))

    def test_every_odd_prompt_has_its_verdict(self):
        for name, turns, grpc_field, http_field in PROMPTS:
            text, told = self.over_grpc(turns)
            self.blames(told, grpc_field, name)
            http_text, told = self.over_http(turns)
            self.blames(told, http_field, name)
            if grpc_field == http_field:
                self.assertEqual(http_text, text, name)
            self.assertEqual(self.over_http(turns, stream=True)[1], told, name)
            self.check_alive(name)

    def test_a_prompt_that_is_a_string_has_the_same_verdict(self):
        for text in ("", " "):
            body = {"model": "shelf-vqa", "max_tokens": 4, "messages": [{"role": "user", "content": text}]}
            connection = http.client.HTTPConnection(self.server._told("HTTP"), timeout=PATIENCE)
            connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            self.assertEqual(json.loads(answer.read())["choices"][0]["message"]["content"],
                             self.over_grpc([("user", [text])])[0])
            connection.close()
        self.check_alive("strings")

    def test_every_option_out_of_range_names_its_field(self):
        question = [("user", [PICTURE, QUESTION])]
        for name, value, grpc_field, http_field in OPTIONS:
            case = f"{name} {str(value)[:40]}"
            if grpc_field is ABSENT:
                with self.assertRaises((ValueError, TypeError), msg=case):
                    types_pb2.GenerationOptions(**{name: value})
            else:
                self.blames(self.over_grpc(question, **{name: value})[1], grpc_field, case)
            if name == "logit_bias":
                value = {str(token): bias for token, bias in value.items()}
            self.blames(self.over_http(question, **{name: value})[1], http_field, case)
            self.check_alive(case)

    def test_what_is_taken_does_what_it_is_documented_to_do(self):
        question = [("user", [PICTURE, QUESTION])]
        for options in ({"top_k": 0}, {"top_k": 10**7}, {"temperature": 1e-9}, {"n": 1},
                        {"temperature": 2, "top_k": 1}, {"temperature": 2, "top_p": 1e-9}):
            self.assertEqual(self.over_grpc(question, **options)[0], " 37", options)  # as the greedy answer
            self.assertEqual(self.over_http(question, **options)[0], " 37", options)
        # More than all are no more than all.
        draws = [self.over_grpc(question, temperature=2, seed=7, max_tokens=40, top_k=k)[0]
                 for k in (VOCABULARY, 10**7)]
        self.assertEqual(*draws)


if __name__ == "__main__":
    unittest.main()
