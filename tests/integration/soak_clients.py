"""Clients of the soak: what they ask, what they may be told, and that nobody waits beyond a deadline."""

import base64
import collections
import dataclasses
import datetime
import http.client
import json
import random
import re
import threading
import time

import grpc

from client import MODEL, error_details, gateway_pb2, gateway_pb2_grpc
from tessera.v1 import types_pb2

CLIENTS = 16
GRACE = 10  # seconds beyond a deadline: for a slow machine, not for the product
CAP = 10  # --deadline_cap: HTTP has no deadline of its own, and who asks over gRPC for a longer one gets this
DEADLINES = (0.3, 2, CAP, CAP, CAP)
PAUSE = 0.4  # seconds between two requests of a client, at most: the services shall have the processors
ALLOWED = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")
OWN_CLOCK = "ended by the client's clock"
GOOD = ("answered", "uploaded", "left")
HTTP_CODES = {503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED", 429: "RESOURCE_EXHAUSTED"}
HTTP_ERRORS = {"unavailable_error": "UNAVAILABLE", "rate_limit_error": "RESOURCE_EXHAUSTED"}
QUESTIONS = ("What is the price on row 2?", "How many items are missing in row 3?",
             "What is in row 1, column 3?", "How many rows does the shelf have?", "Describe the shelf.")

PICTURES = [path.read_bytes() for path in sorted((MODEL / "demo").glob("*.jpg"))]
PICTURES += [path.read_bytes() for path in sorted((MODEL / "eval" / "pictures").glob("*.jpg"))[::11]]


def renewed(picture, name):
    """A picture that nobody has seen, of the same pixels: a JPEG comment more."""
    comment = name.encode()
    return picture[:2] + b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment + picture[2:]


@dataclasses.dataclass(frozen=True)
class Case:
    pictures: tuple  # of PICTURES
    question: str
    before: tuple = ()  # (question, answer) of earlier turns, the first of which has the pictures


class Quiet:
    """What is answered while nothing happens."""

    def __init__(self, ask):
        self.texts = {}
        for number in range(len(PICTURES)):
            for question in QUESTIONS:
                case = Case((number,), question)
                self.texts[case] = ask(case)
            turn = Case((number,), QUESTIONS[1], ((QUESTIONS[0], self.texts[Case((number,), QUESTIONS[0])]),))
            self.texts[turn] = ask(turn)
        for number in range(0, len(PICTURES) - 1, 2):
            pair = Case((number, number + 1), QUESTIONS[0])
            self.texts[pair] = ask(pair)
        self.texts[Case((), QUESTIONS[4])] = ask(Case((), QUESTIONS[4]))
        self.cases = list(self.texts)


def grpc_request(case, pictures, handle=None):
    parts = [types_pb2.Part(image=types_pb2.Image(inline_data=types_pb2.InlineData(data=p))) for p in pictures]
    if handle:
        parts = [types_pb2.Part(image=types_pb2.Image(handle=handle))]
    messages = []
    for question, answer in (*case.before, (case.question, None)):
        parts.append(types_pb2.Part(text=question))
        messages.append(types_pb2.Message(role="user", parts=parts))
        if answer is not None:
            messages.append(types_pb2.Message(role="assistant", parts=[types_pb2.Part(text=answer)]))
        parts = []
    return gateway_pb2.GenerateRequest(messages=messages)


def http_body(case, pictures, handle=None):
    urls = ["data:image/jpeg;base64," + base64.b64encode(p).decode() for p in pictures]
    parts = [{"type": "image_url", "image_url": {"url": u}}
             for u in ([f"tessera-image:{handle}"] if handle else urls)]
    messages = []
    for question, answer in (*case.before, (case.question, None)):
        messages.append({"role": "user", "content": [*parts, {"type": "text", "text": question}]})
        if answer is not None:
            messages.append({"role": "assistant", "content": answer})
        parts = []
    return json.dumps({"model": "tessera", "messages": messages, "stream": True}).encode()


class Record:
    """What became of all requests; what must not be. Any thread."""

    def __init__(self):
        self.mutex = threading.Lock()
        self.outcomes = collections.Counter()
        self.wrong = []
        self.longest = None  # (seconds, deadline) of who came furthest beyond it
        self.kinds, self.good = collections.Counter(), collections.Counter()
        self.failovers = collections.Counter()  # what was the matter with the replica that was first choice

    def add(self, kind, outcome, seconds, deadline):
        with self.mutex:
            self.outcomes[outcome] += 1
            self.kinds[kind] += 1
            self.good[kind] += outcome in GOOD
            if self.longest is None or seconds - deadline > self.longest[0] - self.longest[1]:
                self.longest = (seconds, deadline)

    def all_good(self):
        with self.mutex:
            return self.good.total()

    def routed(self, reason):
        """Why a replica answered, as its receipt has it."""
        found = re.match(r"first choice \S+ is (.+)", reason)
        if found:
            with self.mutex:
                self.failovers[found[1]] += 1

    def blame(self, text):
        with self.mutex:
            self.wrong.append(f"{time.strftime('%H:%M:%S')} {text}")


class Client(threading.Thread):
    """Asks at random until told to stop. The first half speaks gRPC, the other HTTP."""

    def __init__(self, number, seed, fleet, quiet, weather, record):
        super().__init__(daemon=True)
        self.number, self.fleet, self.quiet = number, fleet, quiet
        self.weather, self.record = weather, record
        self.random = random.Random(seed * 1000 + number)
        self.http = number % 2 == 1
        self.renewals = 0
        self.handles = []  # (handle, number of the picture, when)
        self.channel = grpc.insecure_channel(fleet.address, options=[
            ("grpc.enable_retries", 0), ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 500), ("grpc.max_reconnect_backoff_ms", 1000),
            ("grpc.use_local_subchannel_pool", 1)])
        self.stub = gateway_pb2_grpc.GatewayServiceStub(self.channel)

    def run(self):
        while self.weather.enter():
            try:
                self.one()
            except Exception as error:  # the soak must tell, whatever it is
                self.record.blame(f"client {self.number}: {type(error).__name__}: {error}")
            finally:
                self.weather.leave()
            time.sleep(self.random.random() * PAUSE)
        self.channel.close()

    def one(self):
        if not self.http and self.random.random() < 0.12:
            return self.upload()
        case = self.random.choice(self.quiet.cases)
        handle = made = None
        if self.handles and self.random.random() < 0.3:
            handle, number, made = self.random.choice(self.handles)
            case = Case((number,), self.random.choice(QUESTIONS))
        pictures = [PICTURES[n] for n in case.pictures]
        kind = "handle" if handle else "known" if pictures else "text"
        if pictures and not handle and self.random.random() < 0.35:
            kind = "new"
            pictures = [self.renew(p) for p in pictures]
        leaves = self.random.random() < 0.1
        self.ask(kind, case, [] if handle else pictures, handle, made, leaves)

    def renew(self, picture):
        self.renewals += 1
        return renewed(picture, f"{self.number}/{self.renewals}")

    def ask(self, kind, case, pictures, handle, made, leaves):
        deadline = CAP if self.http else self.random.choice(DEADLINES)
        way = self.over_http if self.http else self.over_grpc
        start = time.monotonic()
        outcome, text = way(case, pictures, handle, deadline, leaves)
        self.judge(kind + (" http" if self.http else " grpc"), outcome, start, deadline, made)
        if outcome == "answered" and text != self.quiet.texts[case]:
            self.record.blame(f"WRONG: {kind} {case}: {text!r}, not {self.quiet.texts[case]!r}")

    def judge(self, kind, outcome, start, deadline, made=None):
        end = time.monotonic()
        self.record.add(kind, outcome, end - start, deadline)
        stopped = self.weather.gateway_was_away(start, end)
        if end - start > deadline + GRACE + stopped or outcome == OWN_CLOCK and deadline == CAP:
            self.record.blame(f"HANGS: {kind}, {end - start:.1f} s of {deadline} s: {outcome}")
        elif outcome in GOOD:
            pass
        elif outcome == "IMAGE_EXPIRED" and made is not None and (
                self.weather.lost_something_since(made) or self.redis_looked_down_since(made)):
            self.handles.clear()
        elif outcome == "connection lost" and stopped > 0:
            pass
        elif outcome not in (*ALLOWED, OWN_CLOCK):
            self.record.blame(f"ERROR: {kind} after {end - start:.1f} s: {outcome}")
        elif not self.weather.bad(start) and not (deadline < CAP and outcome in ("DEADLINE_EXCEEDED", OWN_CLOCK)):
            self.record.blame(f"ERROR WITHOUT A FAULT: {kind} after {end - start:.1f} s: {outcome}")

    def redis_looked_down_since(self, start):
        """As a busy machine may make it: what is answered after 50 ms is not found, and not kept either."""
        since = time.time() - (time.monotonic() - start) - CAP
        lines = [line for process in (*self.fleet.vision, *self.fleet.decode)
                 for line in process.text().rpartition("\n")[0].splitlines()
                 if "look-ups miss until it is back" in line]
        return any(datetime.datetime.fromisoformat(json.loads(line)["time"]).timestamp() >= since for line in lines)

    def over_grpc(self, case, pictures, handle, deadline, leaves):
        call = self.stub.GenerateStream(gateway_pb2.GenerateStreamRequest(
            request=grpc_request(case, pictures, handle)), timeout=patience(deadline))
        text, ended = "", False
        try:
            for piece in call:
                text += piece.text
                if piece.HasField("end"):
                    ended = True
                    self.record.routed(piece.end.receipt.replica_reason)
                if leaves and not ended:
                    call.cancel()
                    return "left", text
        except grpc.RpcError as error:
            return grpc_outcome(error), text
        return ("answered" if ended else "OK without an end"), text

    def over_http(self, case, pictures, handle, deadline, leaves):
        connection = http.client.HTTPConnection(self.fleet.http_address, timeout=deadline + GRACE)
        try:
            connection.request("POST", "/v1/chat/completions", http_body(case, pictures, handle),
                               {"Content-Type": "application/json", "Connection": "close"})
            answer = connection.getresponse()
            if answer.status != 200:
                return http_outcome(answer.status, answer.read()), ""
            return read_events(answer, leaves)
        except (OSError, http.client.HTTPException):
            return "connection lost", ""
        finally:
            connection.close()

    def upload(self):
        number = self.random.randrange(len(PICTURES))
        data = self.renew(PICTURES[number])
        deadline = self.random.choice(DEADLINES[1:])
        start = time.monotonic()
        try:
            pieces = [data[at:at + 30000] for at in range(0, len(data), 30000)]
            made = self.stub.UploadImage(
                iter([gateway_pb2.UploadImageRequest(data=p) for p in pieces]), timeout=patience(deadline))
            self.handles = [*self.handles[-3:], (made.handle, number, start)]
            outcome = "uploaded"
        except grpc.RpcError as error:
            outcome = grpc_outcome(error)
        self.judge("upload grpc", outcome, start, deadline)


def read_events(answer, leaves):
    text = ""
    for line in answer:
        if not line.startswith(b"data: "):
            continue
        if line.strip() == b"data: [DONE]":
            return "answered", text
        event = json.loads(line[6:])
        if "error" in event:
            error = event["error"]
            late = error["type"] == "server_error" and error["code"] == "deadline"
            return "DEADLINE_EXCEEDED" if late else HTTP_ERRORS.get(error["type"], f"event {error}"), text
        for choice in event["choices"]:
            text += choice["delta"].get("content") or ""
        if leaves and text:
            return "left", text
    return "connection lost", text


def http_outcome(status, body):
    if status == 404 and b"image_expired" in body:
        return "IMAGE_EXPIRED"
    return HTTP_CODES.get(status, f"HTTP {status} {body[:300]!r}")


def patience(deadline):
    """Of a gRPC call. Its client ends a call at its deadline, whatever the gateway does; so it must be the gateway that
    ends those of CAP."""
    return deadline + GRACE if deadline == CAP else deadline


def grpc_outcome(error):
    name, found = error.code().name, error_details(error)
    if name == "DEADLINE_EXCEEDED" and "ErrorInfo" not in found:
        return OWN_CLOCK
    if name in ALLOWED:
        return name
    if "ErrorInfo" in found and found["ErrorInfo"].reason == "IMAGE_EXPIRED":
        return "IMAGE_EXPIRED"
    return f"{name}: {error.details()}"
