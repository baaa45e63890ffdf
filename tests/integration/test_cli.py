"""The command line, as a person at a shell meets it."""

import json
import pathlib
import tempfile
import unittest

from harness import MODEL, PROXIES, ROOT, Server, run

PICTURE = MODEL / "demo" / "shelf1.jpg"
GOLDENS = ROOT / "tests" / "goldens"


class UsageTest(unittest.TestCase):
    def test_wrong_usage_ends_with_2_and_says_what(self):
        for args, word in [
            ([], "ask"),
            (["nonsense"], "no command nonsense"),
            (["serve"], "--model"),
            (["ask"], "question"),
            (["ask", "--imgae", PICTURE, "q"], "no flag --imgae; the nearest is --image"),
            (["ask", "What", "is", "it?"], "quotes"),
            (["serve", "--model", MODEL, "--kv_cache_bytes", "lots"], "kv_cache_bytes"),
            (["serve", "--model", MODEL, "--deadline_cap", "soon"], "deadline_cap"),
            (["serve", "--model", MODEL, "--quality_gate", "perhaps"], "quality_gate"),
            (["serve", "--model", MODEL, "--kv_cache_dtype", "f8"], "kv_cache_dtype"),
            (["serve", "--model", MODEL, "--grpc_address", "nonsense"], "nonsense"),
            (["serve", "--model", MODEL, "--embedding_store", "disk"], "embedding_store"),
            (["serve", "--model", MODEL, "--max_images", "0"], "--max_images"),
            (["serve", "--model", MODEL, "--block_size", "0"], "block_size"),
            (["serve", "--model", MODEL, "--kv_cache_bytes", "0"], "kv_cache_bytes"),
            (["serve", "--model", MODEL, "--embedding_store_bytes", "1KiB"], "embedding_store_bytes"),
            (["serve", "--model", MODEL, "--max_image_pixels", "-1"], "max_image_pixels"),
            (["serve", "--model", MODEL, "--quality_refuse_sharpness=nan"], "quality_refuse_sharpness"),
            (["serve", "--model", MODEL, "--handle_ttl", "1ns"], "--handle_ttl"),
            (["serve", "--model", MODEL, "--model_name", "two\nlines"], "--model_name"),
            (["ask", "--address", "127.0.0.1:70000", "q"], "127.0.0.1:70000"),
            (["ask", "--address", "", "q"], "address"),
            (["ask", "--address", "http://127.0.0.1:9000", "q"], "without http://"),
            (["ask", "--tls_cert_file", "x", "q"], "--tls_ca_file"),
            (["ask", "--model", MODEL, "--address", "127.0.0.1:1", "q"], "address"),
        ]:
            with self.subTest(args=args):
                code, _, err = run(*args)
                self.assertEqual(code, 2, err)
                self.assertIn(word, err)

    def test_help_ends_with_0(self):
        for args in (["--help"], ["serve", "--help"], ["ask", "--help"], ["--version"]):
            code, out, _ = run(*args)
            self.assertEqual(code, 0)
            self.assertIn("tessera", out.lower())

    def test_a_flag_may_come_from_the_environment(self):
        code, _, err = run("serve", "--model", MODEL, env={"TESSERA_KV_CACHE_BYTES": "lots"})
        self.assertEqual(code, 2)
        self.assertIn("--kv_cache_bytes comes from the variable TESSERA_KV_CACHE_BYTES", err)

    def test_a_variable_of_no_flag_is_told_with_the_nearest(self):
        code, out, err = run("inspect", PICTURE, env={"TESSERA_KV_CACHE_BYTE": "1GiB"})
        self.assertEqual(code, 0, err)
        for word in ("warning", "TESSERA_KV_CACHE_BYTE ", "TESSERA_KV_CACHE_BYTES", "--kv_cache_bytes"):
            self.assertIn(word, err)
        self.assertNotIn("TESSERA", out)
        code, _, err = run("inspect", PICTURE, env={"TESSERA_GOLDENS": "x", "TESSERA_KV_CACHE_BYTES": "x"})
        self.assertEqual((code, err), (0, ""))

    def test_an_empty_variable_is_refused_where_a_flag_takes_no_empty_text(self):
        for name in ("TESSERA_KV_CACHE_BYTES", "TESSERA_MAX_SEQUENCES", "TESSERA_DEADLINE_CAP", "TESSERA_DEVICE"):
            code, _, err = run("serve", "--model", "/no/such", env={name: ""})
            self.assertEqual(code, 2, err)
            self.assertIn(name, err)
        code, _, err = run("serve", env={"TESSERA_MODEL": ""})
        self.assertEqual(code, 2)
        self.assertIn("TESSERA_MODEL", err)
        code, _, err = run("serve", "--model", "/no/such", env={"TESSERA_VISION_DEVICE": ""})
        self.assertEqual(code, 1, err)

    def test_missing_things_are_named(self):
        code, _, err = run("serve", "--model", "/no/such/model")
        self.assertNotEqual(code, 0)
        self.assertIn("/no/such/model", err)
        for name in ("n" * 300, "/".join(["n" * 200] * 30)):
            for command in (("serve", "--model", name), ("inspect", name), ("canary", name),
                            ("ask", "--model", name, "What?")):
                code, _, err = run(*command)
                self.assertEqual(code, 1, err)
                self.assertIn("nnnn", err)
                self.assertNotIn("terminate", err)
        code, _, err = run("ask", "--model", MODEL, "--image", "/no/such/picture.jpg", "What?")
        self.assertEqual(code, 1)
        self.assertIn("/no/such/picture.jpg", err)
        code, _, err = run("ask", "--address", "127.0.0.1:1", "--timeout", "60s", "What?")
        self.assertEqual(code, 1)
        self.assertIn("UNAVAILABLE (NO_SERVER)", err)
        self.assertIn("127.0.0.1:1 ", err)
        self.assertIn("tessera serve starts one", err)
        self.assertNotIn("proxy", err)
        code, _, err = run("ask", "--address", "127.0.0.1:1", "What?", env={"https_proxy": "http://127.0.0.1:2"})
        self.assertIn("https_proxy is set, but addresses are reached without a proxy", err)
        questions = MODEL / "eval" / "eval.jsonl"
        code, out, err = run("bench", "serve", "--address", "127.0.0.1:1", "--questions", questions,
                             "--sessions", "2", "--warmup", "0", env={"http_proxy": "http://127.0.0.1:2"})
        self.assertEqual((code, out), (1, ""))
        self.assertIn("none of 2 requests to 127.0.0.1:1 was answered", err)
        self.assertIn("http_proxy is set, but", err)

    def test_output_that_cannot_be_written_is_a_failure(self):
        import subprocess
        from harness import BINARY
        with open("/dev/full", "w") as full:
            done = subprocess.run([BINARY, "inspect", str(MODEL)], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 1)

    def test_a_reader_that_has_gone_is_a_failure_and_no_signal(self):
        import os
        import subprocess
        from harness import BINARY
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run([BINARY, "inspect", str(MODEL)], stdout=writer, stderr=subprocess.PIPE)
        os.close(writer)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"could not be written", done.stderr)

    def test_a_pipe_is_not_waited_for(self):
        import os
        with tempfile.TemporaryDirectory() as folder:
            pipe = os.path.join(folder, "picture.jpg")
            os.mkfifo(pipe)
            code, _, err = run("ask", "--model", MODEL, "--image", pipe, "What?")
            self.assertEqual(code, 1)
            self.assertIn("not a regular file", err)

    def test_a_question_that_is_no_utf8_is_refused_here(self):
        import subprocess
        from harness import BINARY
        done = subprocess.run([BINARY, "ask", "--model", str(MODEL), "-"], input=b"a\xff", capture_output=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"INVALID_UTF8", done.stderr)

    def test_an_empty_directory_is_no_model(self):
        with tempfile.TemporaryDirectory() as empty:
            code, _, err = run("serve", "--model", empty)
            self.assertEqual(code, 1)
            self.assertIn("config.json", err)
            self.assertIn("models/shelf-vqa", err)


class CanaryTest(unittest.TestCase):
    def test_a_canary_is_written_where_it_is_asked_for(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "canary.safetensors"
            code, out, err = run("canary", MODEL, "--out", path)
            self.assertEqual(code, 0, err)
            self.assertIn(str(path), out)
            self.assertIn(b'"format":"1"', path.read_bytes()[:4096])
            self.assertEqual([entry.name for entry in pathlib.Path(folder).iterdir()], [path.name])

    def test_what_is_no_model_has_no_canary(self):
        code, _, err = run("canary", "nowhere")
        self.assertEqual(code, 1)
        self.assertIn("nowhere", err)
        self.assertEqual(run("canary")[0], 2)


class ServeOutputTest(unittest.TestCase):
    def test_a_server_outlives_the_reader_of_its_output(self):
        import subprocess
        from harness import BINARY
        server = subprocess.Popen(
            [BINARY, "serve", "--model", str(MODEL), "--grpc_address", "127.0.0.1:0"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            address = ""
            for line in server.stdout:
                address = line.split()[1] if line.split()[:1] == ["gRPC"] else address
                if line.strip() == "ready":
                    break
            server.stdout.close()
            for _ in range(2):
                code, out, err = run("ask", "--address", address, "--image", PICTURE,
                                     "What is the price on row 2?")
                self.assertEqual((code, out.strip()), (0, "37"), err)
            server.terminate()
            # What it says at its end is lost, which is a failure; a signal would be negative.
            self.assertGreaterEqual(server.wait(300), 0)
        finally:
            server.kill()
            server.wait()


class AskTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def ask(self, *args, stdin=None):
        return run("ask", "--address", self.server.address, *args, stdin=stdin)

    def test_demo_questions_have_their_answers(self):
        for line in (MODEL / "demo" / "questions.jsonl").read_text().splitlines():
            case = json.loads(line)
            code, out, err = self.ask("--image", MODEL / "demo" / case["image"], case["question"])
            self.assertEqual(code, 0, err)
            self.assertEqual(out.strip(), case["answer"])

    def test_question_from_standard_input_and_json(self):
        code, out, err = self.ask("--image", PICTURE, "--json", "-",
                                  stdin="What is the price on row 2?\n")
        self.assertEqual(code, 0, err)
        answer = json.loads(out)
        self.assertEqual(answer["text"].strip(), "37")
        self.assertEqual(answer["finish_reason"], "stop")
        self.assertEqual(answer["usage"]["image_tokens"], 256)
        stages = answer["receipt"]
        for name in ("queue", "fetch", "image_decode", "preprocess", "encode", "store", "prefill",
                     "first_token", "generation", "total"):
            self.assertGreaterEqual(stages[f"{name}_seconds"], 0)

    def test_every_picture_is_sent_in_order(self):
        other = MODEL / "demo" / "shelf2.jpg"
        code, out, err = self.ask("--image", PICTURE, "--image", other, "--json", "What?")
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out)["usage"]["image_tokens"], 512)
        code, _, err = self.ask("--image", PICTURE, "--image", GOLDENS / "images_bad" / "gif.gif", "What?")
        self.assertEqual(code, 1)
        self.assertIn("parts[1]", err)

    def test_a_short_timeout_is_told_with_its_flag(self):
        code, _, err = self.ask("--timeout", "1us", "--image", PICTURE, "What?")
        self.assertEqual(code, 1)
        self.assertIn("DEADLINE_EXCEEDED", err)
        self.assertIn("--timeout 1us", err)

    def test_log_probabilities_are_for_json(self):
        question = "What is the price on row 2?"
        code, out, err = self.ask("--image", PICTURE, "--top_logprobs", "2", question)
        self.assertEqual((code, out.strip()), (0, "37"), err)
        code, out, err = self.ask("--image", PICTURE, "--top_logprobs", "2", "--json", question)
        self.assertEqual(code, 0, err)
        answer = json.loads(out)
        tokens = answer["logprobs"]
        self.assertEqual(len(tokens), answer["usage"]["output_tokens"])
        self.assertEqual("".join(t["token"] for t in tokens), answer["text"])
        for token in tokens:
            self.assertEqual(bytes(token["bytes"]).decode(), token["token"])
            self.assertEqual([r["id"] for r in token["top"]][:1], [token["id"]])
            self.assertEqual(len(token["top"]), 2)
        code, out, _ = self.ask("--image", PICTURE, "--json", question)
        self.assertNotIn("logprobs", json.loads(out))
        code, _, err = self.ask("--image", PICTURE, "--top_logprobs", "6", question)
        self.assertEqual(code, 2)
        self.assertIn("top_logprobs", err)

    def test_local_answer_without_a_server(self):
        code, out, err = run("ask", "--model", MODEL, "--image", PICTURE, "--receipt",
                             "What is the price on row 2?")
        self.assertEqual(code, 0, err)
        self.assertTrue(out.startswith("37\n"), out)
        self.assertIn("COMPUTED", out)

    def test_a_proxy_of_the_environment_is_not_used(self):
        for name, proxy in PROXIES.items():
            code, out, err = run("ask", "--address", self.server.address, "--image", PICTURE,
                                 "What is the price on row 2?", env={name: proxy})
            self.assertEqual((code, out.strip()), (0, "37"), err)

    def test_a_bad_picture_is_refused_and_the_next_works(self):
        for name in ("gif.gif", "jpeg_half.jpg", "png_bomb_12000x12000.png", "text.bmp"):
            code, out, err = self.ask("--image", GOLDENS / "images_bad" / name, "What?")
            self.assertEqual(code, 1)
            self.assertIn("INVALID_ARGUMENT", err)
            self.assertEqual(out, "")
        code, out, _ = self.ask("--image", PICTURE, "What is the price on row 2?")
        self.assertEqual((code, out.strip()), (0, "37"))

    def test_stages_cover_the_wall_time(self):
        # A stage that is not told is missing from each; a busy machine's pauses are not.
        shares = []
        for picture in sorted((MODEL / "eval" / "pictures").glob("*.jpg")):
            code, out, err = self.ask("--image", picture, "--json", "Describe the shelf.")
            self.assertEqual(code, 0, err)
            r = json.loads(out)["receipt"]
            covered = sum(r[f"{n}_seconds"] for n in ("queue", "fetch", "image_decode",
                          "preprocess", "encode", "store", "prefill", "generation"))
            shares.append(covered / r["total_seconds"])
            if shares[-1] >= 0.95:
                return
        self.fail(shares)


class InspectTest(unittest.TestCase):
    def test_a_model_without_its_weights_loaded(self):
        code, out, err = run("inspect", MODEL)
        self.assertEqual(code, 0, err)
        for word in ("llava", "256 rows", "KV bytes per token", "parameters", "can be served"):
            self.assertIn(word, out)

    def test_what_is_unsupported_is_told(self):
        code, out, err = run("inspect", GOLDENS / "models" / "qwen2-vl")
        self.assertEqual(code, 0, err)
        self.assertIn("qwen2_vl", out)
        self.assertIn("unsupported", out)

    def test_a_template_that_loses_the_picture_is_told_and_not_served(self):
        import shutil
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "model"
            shutil.copytree(MODEL, model, ignore=shutil.ignore_patterns("eval", "expected", "inputs"))
            template = model / "chat_template.jinja"
            template.write_text(template.read_text().replace("<image>", "picture"))
            code, out, _ = run("inspect", model)
            self.assertEqual(code, 0)
            self.assertIn("do not make one placeholder", out)
            code, _, err = run("serve", "--model", model, "--grpc_address", "127.0.0.1:0")
            self.assertEqual(code, 1)
            self.assertIn("TEMPLATE_LOSES_IMAGES", err)
            template.unlink()
            code, out, _ = run("inspect", model)
            self.assertIn("template:", out)

    def test_pictures(self):
        code, out, err = run("inspect", PICTURE, "--model", MODEL)
        self.assertEqual(code, 0, err)
        for word in ("jpeg", "896 x 896", "256 (grid 16 x 16)", "pass"):
            self.assertIn(word, out)
        code, out, _ = run("inspect", GOLDENS / "images_odd" / "exif_6.jpg")
        self.assertEqual(code, 0)
        self.assertIn("orientation            6", out)
        code, _, err = run("inspect", GOLDENS / "images_bad" / "jpeg_half.jpg")
        self.assertEqual(code, 1)
        self.assertIn("jpeg_half.jpg", err)


if __name__ == "__main__":
    unittest.main()
