"""Two replicas of each service: who is asked, and who instead when one is lost, drains or is broken."""

import contextlib
import pathlib
import queue
import shutil
import signal
import subprocess
import threading
import unittest

import grpc

from client import OTHER, PATIENCE, PICTURE, QUESTION, UNREAD, gateway_pb2, gateway_pb2_grpc, request
from fleet import state, status, wait_until
from harness import MODEL, SANITIZED
from series import Scrape
from test_services import ANSWER, FleetTest, get_page, redis_says
from tessera.v1 import types_pb2


class TwoOfEachTest(FleetTest):
    vision, decode = 2, 2
    decode_flags = ("--slow_client_timeout", "5m", "--drain_timeout", "1h")
    gateway_flags = (*FleetTest.gateway_flags, *decode_flags)
    TOKENS = 400 if SANITIZED else 2000  # of a long answer, seconds

    def test_a_session_stays_where_its_prefix_is_and_moves_when_that_is_lost(self):
        first = self.ask_until_kept(PICTURE, session="s").receipt
        self.assertEqual(first.replica_reason, "affinity")
        for _ in range(3):
            again = self.ask(PICTURE, session="s").receipt
            self.assertEqual(again.replica, first.replica)
            self.assertEqual(again.images[0].cache, types_pb2.CACHE_TIER_PREFIX_KV)
        lost = next(p for p in self.fleet.decode if p.address == first.replica)
        lost.kill()
        moved = self.ask(PICTURE, session="s")  # whether the gateway knows of it yet or not
        self.assertEqual(moved.text.strip(), ANSWER)
        self.assertNotEqual(moved.receipt.replica, first.replica)
        self.assertIn(f"first choice {first.replica} is ", moved.receipt.replica_reason)
        self.assertEqual(moved.receipt.images[0].cache, types_pb2.CACHE_TIER_STORE)
        lost.start()
        self.await_up("decode", lost)
        self.assertEqual(self.ask(PICTURE, session="s").receipt.replica, first.replica)

    def long_stream(self, session):
        """The events of a long answer, the same token again and again; they come as fast as they are made."""
        asked = request("Describe the shelf.", max_tokens=self.TOKENS, logit_bias={100: 100})
        asked.session = session
        events = queue.SimpleQueue()

        def read():
            try:
                for event in self.stub.GenerateStream(gateway_pb2.GenerateStreamRequest(request=asked)):
                    events.put(event)
                events.put(None)
            except grpc.RpcError as error:
                events.put(error)

        threading.Thread(target=read, daemon=True).start()
        return events

    @contextlib.contextmanager
    def unread_stream(self, session, tokens):
        """The events after the first; who takes none of them leaves all but a little where it is made."""
        asked = request("Describe the shelf.", max_tokens=tokens, logit_bias={100: 100}, top_logprobs=5)
        asked.session = session
        with grpc.insecure_channel(self.fleet.address, options=UNREAD) as channel:
            events = gateway_pb2_grpc.GatewayServiceStub(channel).GenerateStream(
                gateway_pb2.GenerateStreamRequest(request=asked))
            next(events)
            yield events

    def check_whole(self, first, events):
        seen = [first, *iter(lambda: events.get(timeout=PATIENCE), None)]
        self.assertNotIsInstance(seen[-1], grpc.RpcError, seen[-1])
        text = "".join(event.text for event in seen)
        self.assertEqual(text, first.text[:1] * self.TOKENS)
        self.assertEqual(seen[-1].end.usage.output_tokens, self.TOKENS)
        return seen[-1].end.receipt

    def test_an_answer_that_is_made_but_not_read_is_whole_though_its_replica_ends(self):
        tokens = 150 if SANITIZED else 800  # of 1100, decode made some 1095 and waited for the reader
        used = self.ask(text="Hello?", session="s").receipt.replica
        draining = next(p for p in self.fleet.decode if p.address == used)
        with self.unread_stream("s", tokens) as slow:
            wait_until(lambda: Scrape(get_page(draining, "/metrics")).sum(
                "tessera_decode_requests_finished_total", finished_reason="length") == 1, "all tokens are made")
            draining.process.send_signal(signal.SIGTERM)
            wait_until(lambda: "draining" in draining.text(), "it drains")
            # What has not reached the gateway holds it; else it ends, after those who only watch.
            with contextlib.suppress(subprocess.TimeoutExpired):
                draining.process.wait(2)
            events = list(slow)
        self.assertEqual(events[-1].end.usage.output_tokens, tokens)
        self.assertEqual(draining.process.wait(PATIENCE), 0)

    def test_a_draining_replica_ends_what_it_has_and_gets_nothing_new(self):
        used = self.ask(text="Hello?", session="s").receipt.replica
        draining = next(p for p in self.fleet.decode if p.address == used)
        streams = [self.long_stream("s") for _ in range(2)]
        firsts = [events.get(timeout=PATIENCE) for events in streams]
        told = lambda: state(self.fleet.gateway)["gateway"]["decode"][used]
        with self.unread_stream("s", 2000) as holds:  # more than the gateway takes unread
            draining.process.send_signal(signal.SIGTERM)
            wait_until(lambda: told()["draining"], f"{draining.name} drains")
            for session in ("s", "t", "u", ""):
                receipt = self.ask(text="Hello?", session=session).receipt
                self.assertNotEqual(receipt.replica, used)
                if session == "s":
                    self.assertEqual(receipt.replica_reason, f"first choice {used} is draining")
            self.assertIsNone(draining.process.poll(), "it has what it began")
            self.assertEqual(list(holds)[-1].end.usage.output_tokens, 2000)
        for first, events in zip(firsts, streams):
            self.assertEqual(self.check_whole(first, events).replica, used)
        self.assertEqual(draining.process.wait(PATIENCE), 0, draining.text())

    def test_pictures_are_encoded_by_who_is_left(self):
        used = self.ask(PICTURE).receipt.images[0].replica
        next(p for p in self.fleet.vision if p.address == used).kill()
        answer = self.ask(OTHER, text=QUESTION)
        self.assertNotEqual(answer.receipt.images[0].replica, used)

    def break_canary(self, service, process):
        """Starts it anew with a model whose canary is damaged."""
        folder = pathlib.Path(self.fleet.folder) / f"{service}-broken"
        shutil.copytree(MODEL, folder, ignore=shutil.ignore_patterns("demo", "eval", "expected", "inputs"))
        (folder / "tessera_canary.safetensors").write_bytes(b"damaged")
        process.command[process.command.index("--model") + 1] = str(folder)
        self.restart(service, process)
        wait_until(lambda: "never ready: canary" in process.text(), f"{process.name} knows why it is not ready")
        wait_until(lambda: state(self.fleet.gateway)["gateway"][service][process.address]["broken"],
                   f"{process.name} says that it is broken")

    def test_who_fails_his_canary_is_asked_nothing(self):
        first = self.ask(PICTURE, session="s").receipt
        decode = next(p for p in self.fleet.decode if p.address == first.replica)
        vision = next(p for p in self.fleet.vision if p.address == first.images[0].replica)
        self.break_canary("decode", decode)
        self.break_canary("vision", vision)
        redis_says(self.fleet.redis_port, "FLUSHALL")
        for number, session in enumerate(("s", "t", "u", "v", "")):
            answer = self.ask(PICTURE + bytes(number), session=session)
            self.assertEqual(answer.text.strip(), ANSWER)
            self.assertNotEqual(answer.receipt.replica, decode.address)
            self.assertNotEqual(answer.receipt.images[0].replica, vision.address)
            if session == "s":
                self.assertEqual(answer.receipt.replica_reason, f"first choice {decode.address} is broken")
                self.assertEqual(answer.receipt.images[0].replica_reason, f"first choice {vision.address} is broken")
        for process in (decode, vision):
            wait_until(lambda: status(process, "/readyz") == 503, f"{process.name} is not ready")
            wait_until(lambda: status(process, "/healthz") == 200, f"{process.name} is alive")


class SilenceTest(FleetTest):
    decode = 2
    gateway_flags = ("--load_silence", "6s")

    def test_a_stopped_replica_is_left_out_and_its_calls_go_on_elsewhere(self):
        used = self.ask(PICTURE, session="s").receipt.replica
        stopped = next(p for p in self.fleet.decode if p.address == used)
        stopped.stop()
        answer = self.ask(PICTURE, session="s")
        self.assertEqual(answer.text.strip(), ANSWER)
        self.assertNotEqual(answer.receipt.replica, used)
        stopped.cont()
        self.await_up("decode", stopped)
        self.assertEqual(self.ask(PICTURE, session="s").receipt.replica, used)


if __name__ == "__main__":
    unittest.main()
