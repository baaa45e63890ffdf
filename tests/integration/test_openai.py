"""The HTTP API by the unmodified OpenAI client, and every body of the goldens over the wire."""

import asyncio
import base64
import http.client
import json
import math
import os
import pathlib
import unittest

import openai

from client import MODEL, OTHER, PATIENCE, PICTURE, QUESTION, Base, gateway_pb2, request
from harness import ROOT

GOLDENS = pathlib.Path(os.environ.get("TESSERA_GOLDENS", ROOT / "tests" / "goldens"))


def data_url(picture):
    return "data:image/jpeg;base64," + base64.b64encode(picture).decode()


def messages(text, *urls):
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return [{"role": "user", "content": [*parts, {"type": "text", "text": text}]}]


class HttpBase(Base):
    flags = ("--http_address", "127.0.0.1:0")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        lines = [line.split() for line in cls.server.text().splitlines()]
        cls.http_address = next(line[1] for line in lines if line[:1] == ["HTTP"])


class OpenAiTest(HttpBase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.options = {"base_url": f"http://{cls.http_address}/v1", "api_key": "none",
                       "max_retries": 0, "timeout": PATIENCE}
        cls.client = openai.OpenAI(**cls.options)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        super().tearDownClass()

    def ask(self, *args, **more):
        return self.client.chat.completions.create(model="shelf-vqa", messages=messages(*args), **more)

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], ["shelf-vqa"])
        self.assertEqual(self.client.models.retrieve("shelf-vqa").object, "model")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("other")

    def test_an_answer_about_a_picture(self):
        answer = self.ask(QUESTION, data_url(PICTURE))
        unary = self.stub.Generate(request(QUESTION, PICTURE), timeout=PATIENCE)
        self.assertEqual(answer.choices[0].message.content, unary.text)
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        usage = answer.usage
        self.assertEqual(usage.prompt_tokens, unary.usage.prompt_tokens)
        self.assertEqual(usage.completion_tokens, unary.usage.output_tokens)
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        details = usage.prompt_tokens_details
        self.assertEqual(details.image_tokens, 256)
        self.assertEqual(details.text_tokens, usage.prompt_tokens - 256)
        self.assertEqual(self.ask(QUESTION, data_url(PICTURE)).usage.prompt_tokens, usage.prompt_tokens)

    def test_a_stream_says_what_the_answer_says(self):
        question = ("Describe the shelf.", data_url(PICTURE))
        whole = self.ask(*question)
        chunks = list(self.ask(*question, stream=True, stream_options={"include_usage": True}))
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        texts = [c.choices[0].delta.content or "" for c in chunks if c.choices]
        self.assertEqual("".join(texts), whole.choices[0].message.content)
        self.assertEqual(chunks[-2].choices[0].finish_reason, "stop")
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        self.assertTrue(all(c.usage is None for c in chunks[:-1]))
        self.assertEqual(len({c.id for c in chunks}), 1)
        # The role, the text, its end, the usage: how many pieces of the text are joined is luck.
        self.assertGreaterEqual(len(chunks), 4)

    def test_the_helper_for_streams_puts_the_answer_together(self):
        with self.client.chat.completions.stream(
                model="shelf-vqa", messages=messages(QUESTION, data_url(PICTURE))) as stream:
            for _ in stream:
                pass
            self.assertEqual(stream.get_final_completion().choices[0].message.content.strip(), "37")

    def test_log_probabilities(self):
        question = (QUESTION, data_url(PICTURE))
        answer = self.ask(*question, logprobs=True, top_logprobs=5)
        tokens = answer.choices[0].logprobs.content
        self.assertEqual(len(tokens), answer.usage.completion_tokens)
        self.assertEqual(bytes(b for t in tokens for b in t.bytes).decode(), answer.choices[0].message.content)
        for token in tokens:
            self.assertEqual(len(token.top_logprobs), 5)
            self.assertEqual(token.top_logprobs[0].token, token.token)  # greedy
            self.assertLessEqual(sum(math.exp(t.logprob) for t in token.top_logprobs), 1 + 1e-4)
        streamed = [t for c in self.ask(*question, stream=True, logprobs=True)
                    if c.choices[0].logprobs for t in c.choices[0].logprobs.content]
        self.assertEqual([t.token for t in streamed], [t.token for t in tokens])
        self.assertIsNone(self.ask(*question).choices[0].logprobs)

    def test_a_handle_is_a_picture(self):
        upload = self.stub.UploadImage(iter([gateway_pb2.UploadImageRequest(data=OTHER)]), timeout=PATIENCE)
        answer = self.ask(QUESTION, "tessera-image:" + upload.handle)
        self.assertEqual(answer.choices[0].message.content.strip(), "25")
        with self.assertRaises(openai.NotFoundError):
            self.ask(QUESTION, "tessera-image:" + "x" * 40)

    def test_options_reach_the_answer(self):
        short = self.ask("Describe the shelf.", data_url(PICTURE), max_completion_tokens=3, max_tokens=9)
        self.assertEqual((short.usage.completion_tokens, short.choices[0].finish_reason), (3, "length"))
        draws = [self.ask("Describe the shelf.", data_url(PICTURE), temperature=1.5, seed=-7, max_tokens=30)
                 for _ in range(2)]
        self.assertEqual(*[d.choices[0].message.content for d in draws])
        whole = self.ask("Describe the shelf.", data_url(PICTURE)).choices[0].message.content
        stopped = self.ask("Describe the shelf.", data_url(PICTURE), stop=["Row 2"])
        self.assertEqual(stopped.choices[0].message.content, whole.split("Row 2")[0])
        self.assertEqual(stopped.choices[0].finish_reason, "stop")
        biased = self.ask("Describe the shelf.", max_tokens=4, logit_bias={"100": 100}, logprobs=True)
        self.assertEqual(len({t.token for t in biased.choices[0].logprobs.content}), 1)

    def test_receipts(self):
        body = {"tessera": {"receipt": True}}
        first = self.ask(QUESTION, data_url(PICTURE), extra_body=body).model_extra["tessera"]["receipt"]
        self.assertEqual(first["images"][0]["rows"], 256)
        self.assertGreater(first["total_seconds"], 0)
        for options in ({}, {"stream_options": {"include_usage": True}}):
            *chunks, last = self.ask(QUESTION, data_url(PICTURE), stream=True, extra_body=body, **options)
            self.assertIn(last.model_extra["tessera"]["receipt"]["images"][0]["cache"], ("LOCAL", "PREFIX_KV"))
            self.assertTrue(all("tessera" not in (c.model_extra or {}) for c in chunks))

    def test_many_at_once_get_what_they_get_alone(self):
        questions = [f"What is in row {1 + i % 3}, column {1 + i // 3}?" for i in range(8)]
        alone = [self.ask(q, data_url(PICTURE)).choices[0].message.content for q in questions]

        async def together():
            async with openai.AsyncOpenAI(**self.options) as client:
                async def stream(question):
                    chunks = await client.chat.completions.create(
                        model="shelf-vqa", messages=messages(question, data_url(PICTURE)), stream=True)
                    return "".join([c.choices[0].delta.content or "" async for c in chunks])
                return await asyncio.gather(*map(stream, questions))

        self.assertEqual(asyncio.run(together()), alone)

    def test_errors_are_the_clients_exceptions(self):
        for wrong, param in (({"temperature": 3}, "temperature"), ({"top_p": 0}, "top_p"),
                             ({"n": 2}, "n"), ({"max_tokens": 10**9}, "max_tokens"),
                             ({"extra_body": {"prompt_cache_key": "x" * 300}}, "prompt_cache_key"),
                             ({"logit_bias": {"4000000000": 1}}, "logit_bias")):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.ask(QUESTION, **wrong)
            self.assertEqual(caught.exception.type, "invalid_request_error")
            self.assertTrue(caught.exception.param.startswith(param), (param, caught.exception))
            self.assertIsNotNone(caught.exception.code)
            self.assertRegex(caught.exception.response.headers["x-request-id"], "^[0-9a-f]{32}$")
        for url in ("data:image/png;base64,AAAA", data_url(PICTURE[:2000]), "http://127.0.0.1:9/x", "/etc/passwd"):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.ask(QUESTION, url, stream=True)
            self.assertTrue(caught.exception.param.startswith("messages[0].content[0].image_url"), caught.exception)
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.chat.completions.create(model="other", messages=messages(QUESTION))
        self.assertEqual((caught.exception.code, caught.exception.param), ("model_not_found", "model"))
        with self.assertRaises(openai.NotFoundError):
            self.client.embeddings.create(model="shelf-vqa", input="x")

    def test_a_stream_that_is_left_harms_nobody(self):
        for _ in range(8):
            stream = self.ask("Describe the shelf.", data_url(PICTURE), stream=True)
            next(iter(stream))
            stream.close()
        self.assertEqual(self.ask(QUESTION, data_url(PICTURE)).choices[0].message.content.strip(), "37")

    def test_request_ids_come_back(self):
        answer = self.client.chat.completions.with_raw_response.create(
            model="shelf-vqa", messages=messages(QUESTION), max_tokens=2, extra_headers={"x-request-id": "mine-1"})
        self.assertEqual(answer.headers["x-request-id"], "mine-1")

    def test_a_taken_port_is_an_error_at_start(self):
        from harness import run
        code, _, err = run("serve", "--model", MODEL, "--grpc_address", "127.0.0.1:0",
                           "--http_address", self.http_address)
        self.assertEqual(code, 1)
        self.assertIn(self.http_address, err)


class GoldenBodiesTest(HttpBase):
    """Every case of json_bad, each followed by a request that must still be answered."""

    def post(self, body):
        connection = http.client.HTTPConnection(self.http_address, timeout=PATIENCE)
        try:
            connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.getheader("content-type"), response.read()
        finally:
            connection.close()

    def body_of(self, case):
        if "body" in case:
            return case["body"].encode()
        if "body_base64" in case:
            return base64.b64decode(case["body_base64"])
        return "".join(text * times for text, times in case["body_parts"]).encode()

    def check_answer(self, name, body, content_type, raw):
        limit = None
        try:
            asked = json.loads(body)
            limit = asked.get("max_completion_tokens") or asked.get("max_tokens")
        except ValueError:
            pass
        if content_type.startswith("text/event-stream"):
            self.assertTrue(raw.endswith(b"data: [DONE]\n\n"), name)
            return
        answer = json.loads(raw)
        self.assertEqual(answer["choices"][0]["message"]["role"], "assistant", name)
        if limit:
            self.assertLessEqual(answer["usage"]["completion_tokens"], limit, name)

    def check_error(self, name, case, raw):
        error = json.loads(raw)["error"]
        self.assertEqual(set(error), {"message", "type", "param", "code"}, name)
        self.assertEqual(error["type"], case["error_type"], name)
        if case.get("param_may_be_any") or (error["param"] is None and case.get("param_may_be_null")):
            return
        wanted, param = case.get("param"), error["param"]
        if wanted is None:
            self.assertIsNone(param, name)
        else:
            self.assertTrue(param == wanted or (param or "").startswith((wanted + ".", wanted + "[")), (name, error))

    def test_every_verdict(self):
        goldens = json.loads((GOLDENS / "json_bad" / "verdicts.json").read_text())
        self.assertGreater(len(goldens["cases"]), 0)
        minimal = self.body_of(next(c for c in goldens["cases"] if c["name"] == "good-minimal"))
        for case in goldens["cases"]:
            name, body = case["name"], self.body_of(case)
            status, content_type, raw = self.post(body)
            self.assertIn(status, (case["http_status"], case.get("status_may_also_be")), (name, raw[:500]))
            if status == 200:
                self.check_answer(name, body, content_type, raw)
            else:
                self.check_error(name, case, raw)
            self.assertEqual(self.post(minimal)[0], 200, f"after {name}")
        print(len(goldens["cases"]), "cases")


if __name__ == "__main__":
    unittest.main()
