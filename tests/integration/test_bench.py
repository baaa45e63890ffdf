"""`tessera bench serve` against a running server: what it counts, and what it says when it cannot."""

import json
import pathlib
import tempfile
import unittest

from harness import MODEL, Server, run

EVAL = MODEL / "eval" / "eval.jsonl"
PERCENTILES = ("median", "p90", "p99")


class BenchServeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()
        cls.server.__exit__()

    def questions(self, name, first, pictures):
        """A set of its own pictures, so that the server has seen none of them."""
        lines = [json.loads(line) for line in EVAL.read_text().splitlines()]
        names = sorted({line["image"] for line in lines})[first:first + pictures]
        path = pathlib.Path(self.folder.name) / name
        path.write_text("\n".join(
            json.dumps({"image": str(EVAL.parent / line["image"]), "question": line["question"]})
            for line in lines if line["image"] in names) + "\n\n")
        return path

    def bench(self, questions, *flags, address=None, warmup=0):
        return run("bench", "serve", "--address", address or self.server.address, "--questions", questions,
                   "--warmup", warmup, *flags)

    def report(self, questions, *flags, **options):
        code, out, err = self.bench(questions, "--json", *flags, **options)
        self.assertEqual(code, 0, err)
        report = json.loads(out)
        self.check(report)
        return report, err

    def check(self, report):
        """What holds for every run."""
        self.assertEqual(report["failed"], 0, report["first_error"])
        everything = report["all"]
        self.assertEqual(everything["requests"], report["completed"])
        for groups in ("by_tier", "by_complexity"):
            self.assertEqual(sum(group["requests"] for group in report[groups]), report["completed"])
        for group in (everything, *report["by_tier"], *report["by_complexity"]):
            for kind in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
                values = [group[kind][p] for p in PERCENTILES]
                self.assertEqual(values, sorted(values), (group["name"], kind))
                self.assertGreaterEqual(values[0], 0)
            self.assertGreater(group["ttft_ms"]["mean"], 0)
            for value in ("mean", *PERCENTILES):
                self.assertLessEqual(group["ttft_ms"][value], group["e2e_ms"][value])
        if everything["itl_ms"]["median"] > 0:  # answers of one piece have no gaps
            self.assertGreaterEqual(everything["itl_jitter"], 1)
        self.assertGreater(report["duration_seconds"] * 1e3, everything["e2e_ms"]["median"])
        self.assertGreater(report["total_output_tokens"], report["completed"] - 1)
        # Every prompt holds its one picture of 256 rows, and text.
        self.assertEqual(report["image_tokens"], 256 * report["completed"])
        self.assertGreater(report["total_input_tokens"], report["image_tokens"])
        self.assertLess(report["cached_tokens"], report["total_input_tokens"])
        self.assertLessEqual(report["ahead_tokens"], report["cached_tokens"])
        self.assertGreater(report["server_peak_bytes"], 10 << 20)
        stages = report["stages_mean_ms"]
        self.assertEqual(set(stages), {"image_decode", "preprocess", "encode", "store", "fetch", "queue",
                                       "prefill", "generation"})
        self.assertGreater(stages["prefill"], 0)
        # Stages are times within their requests.
        self.assertLessEqual(sum(stages.values()), 1.05 * everything["e2e_ms"]["mean"])

    def tiers(self, report):
        return {group["name"]: group["requests"] for group in report["by_tier"]}

    def test_a_closed_loop_with_turns_finds_pictures_in_the_prefix_cache(self):
        questions = self.questions("turns.jsonl", 0, 6)
        report, err = self.report(questions, "--sessions", 6, "--turns", 3, "--concurrency", 2)
        self.assertEqual(report["completed"], 18)
        self.assertEqual((report["max_concurrency"], report["session_rate"]), (2, 0))
        self.assertEqual(self.tiers(report), {"computed": 6, "prefix_kv": 12})
        self.assertGreater(report["stages_mean_ms"]["encode"], 0)
        # Every second and third turn reads its picture's rows, in whole blocks, from the cache.
        self.assertGreater(report["cached_tokens"], 12 * 256)
        self.assertEqual([group["requests"] for group in report["by_complexity"]], [6, 6, 6])
        self.assertEqual([group["name"].split(",")[0] for group in report["by_complexity"]],
                         ["low", "middle", "high"])
        self.assertIn("6/6 sessions", err)
        # The same pictures again: nothing is computed.
        again, _ = self.report(questions, "--sessions", 6, "--turns", 3, "--concurrency", 2)
        self.assertNotIn("computed", self.tiers(again))
        self.assertEqual(again["stages_mean_ms"]["encode"], 0)
        self.assertEqual((again["total_input_tokens"], again["total_output_tokens"]),
                         (report["total_input_tokens"], report["total_output_tokens"]))

    def test_an_open_loop_begins_sessions_at_its_rate(self):
        report, _ = self.report(self.questions("rate.jsonl", 10, 3), "--sessions", 9, "--rate", 20,
                                "--concurrency", 9, "--seed", 5)
        self.assertEqual((report["completed"], report["session_rate"]), (9, 20))
        # The arrivals of this seed span half a second, however fast the server is.
        self.assertGreater(report["duration_seconds"], 0.2)

    def test_uploaded_pictures_are_named_by_their_handles(self):
        report, _ = self.report(self.questions("upload.jsonl", 20, 4), "--sessions", 4, "--turns", 2, "--upload",
                                "--concurrency", 1)
        self.assertEqual(report["completed"], 8)
        # In a session without a pause the first question may come before its rows; no later one does.
        self.assertGreaterEqual(self.tiers(report).get("prefix_kv", 0), 4)

    def test_warm_up_is_not_counted(self):
        questions = self.questions("warm.jsonl", 30, 2)
        report, _ = self.report(questions, "--sessions", 2, warmup=2)
        self.assertEqual(report["completed"], 2)
        self.assertNotIn("computed", self.tiers(report))

    def test_the_block_that_people_read(self):
        code, out, err = self.bench(self.questions("block.jsonl", 40, 2), "--sessions", 2, "--turns", 2)
        self.assertEqual(code, 0, err)
        lines = out.splitlines()
        self.assertIn("Serving Benchmark Result", lines[0])
        values = dict(line.rsplit(":", 1) for line in lines if ": " in line and not line.startswith("stages"))
        self.assertEqual(values["Successful requests"].strip(), "4")
        self.assertEqual(values["Failed requests"].strip(), "0")
        for name in ("TTFT", "TPOT", "ITL", "E2E"):
            for statistic in ("Mean", "Median", "P90", "P99"):
                self.assertGreaterEqual(float(values[f"{statistic} {name} (ms)"]), 0)
        for word in ("prefix_kv", "computed", "stages, mean ms:", "Peak memory of the server (MB)"):
            self.assertIn(word, out)

    def test_a_server_that_is_not_there_is_told(self):
        questions = self.questions("none.jsonl", 50, 1)
        for flags in ((), ("--upload",)):
            code, out, err = self.bench(questions, "--sessions", 1, *flags, address="127.0.0.1:1")
            self.assertEqual((code, out), (1, ""), err)
            self.assertIn("none of 1 requests to 127.0.0.1:1 was answered", err)
            self.assertIn("UNAVAILABLE", err)
        code, out, err = self.bench(questions, "--sessions", 1, "--json", address="127.0.0.1:1")
        self.assertEqual(code, 1)
        self.assertEqual((json.loads(out)["completed"], json.loads(out)["failed"]), (0, 1))
        self.assertIn("UNAVAILABLE", err)

    def test_a_bad_set_of_questions_is_told_with_its_line(self):
        picture = json.dumps(str(MODEL / "demo" / "shelf1.jpg"))
        good = f'{{"image": {picture}, "question": "What?"}}\n'
        for name, text, words in [
                ("empty", "\n", ["holds no question"]),
                ("cut", good + '{"image": ', ["line 2"]),
                ("wrong", good + '{"image": 3, "question": "What?"}', ["line 2", "image must be a string"]),
                ("lacks", f'{{"image": {picture}}}', ["line 1", "question must be a string"]),
                ("gone", '{"image": "no.jpg", "question": "What?"}', ["line 1", "no.jpg"]),
                ("list", "[]", ["line 1"])]:
            path = pathlib.Path(self.folder.name) / f"{name}.jsonl"
            path.write_text(text)
            code, out, err = self.bench(path, "--sessions", 1)
            self.assertEqual((code, out), (1, ""), name)
            for word in (*words, path.name):
                self.assertIn(word, err)
        code, _, err = self.bench("/no/such/set.jsonl")
        self.assertEqual(code, 1)
        self.assertIn("/no/such/set.jsonl", err)

    def test_wrong_numbers_are_refused(self):
        questions = self.questions("numbers.jsonl", 60, 1)
        for flag, value in (("sessions", 0), ("turns", 0), ("concurrency", 0), ("rate", -1), ("rate", "nan"),
                            ("warmup", -1)):
            code, out, err = self.bench(questions, f"--{flag}={value}")
            self.assertNotEqual(code, 0)
            self.assertEqual(out, "")
            self.assertIn(flag, err)


if __name__ == "__main__":
    unittest.main()
