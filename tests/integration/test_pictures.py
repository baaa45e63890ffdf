"""Pictures that lie, that are none, that claim another's name, and names that are no pictures: over gRPC and HTTP."""

import base64
import concurrent.futures
import ctypes
import os
import pathlib
import re
import socket
import struct
import tempfile
import unittest
import zlib

import grpc

from client import OTHER, PATIENCE, PICTURE, QUESTION, Base, data_url, gateway_pb2, post_chat, request, types_pb2
from harness import ROOT
from test_ops import scrape

GOLDENS = pathlib.Path(os.environ.get("TESSERA_GOLDENS", ROOT / "tests" / "goldens"))


class PictureBase(Base):
    flags = ("--http_address", "127.0.0.1:0")

    def http(self, url, **fields):
        """Status and body of a question about it; `fields` stand beside the URL."""
        image = {"type": "image_url", "image_url": {"url": url}, **fields}
        body = {"model": "shelf-vqa", "messages": [
            {"role": "user", "content": [image, {"type": "text", "text": QUESTION}]}], **fields}
        status, _, answer = post_chat(self.server._told("HTTP"), body)
        return status, answer

    def http_text(self, picture, **fields):
        status, body = self.http(data_url(picture), **fields)
        self.assertEqual(status, 200, body)
        return body["choices"][0]["message"]["content"]

    def grpc_refusal(self, asked):
        error = self.refused(self.stub.Generate, asked)
        self.assertEqual(error.code(), grpc.StatusCode.INVALID_ARGUMENT, error.details())
        return self.details(error)["ErrorInfo"].reason

    def upload(self, picture, size=256 << 10):
        pieces = [gateway_pb2.UploadImageRequest(data=picture[at:at + size]) for at in range(0, len(picture), size)]
        return self.stub.UploadImage(iter(pieces), timeout=PATIENCE).handle


def one_colour_png(side):
    """[side, side] of RGB, every row alike; small."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    packer = zlib.compressobj(6)
    row = b"\0" + b"\x30\x60\x90" * side
    pixels = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


class BombTest(PictureBase):
    """FAULTS B088: what a picture would take is known from its header, and nothing of it is told."""

    AT_ONCE = 20
    MOST_MORE = 50 << 20  # bytes; one decoded bomb has 412 MiB

    def peak(self):
        text = pathlib.Path(f"/proc/{self.server.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", text)[1]) << 10

    def forget_peak(self):
        pathlib.Path(f"/proc/{self.server.process.pid}/clear_refs").write_text("5")
        return self.peak()

    def ways(self, picture):
        """What each way to ask about it says: a short reason."""
        def by_handle():
            try:
                handle = self.upload(picture)
                return self.stub.Generate(request(QUESTION, handle=handle), timeout=PATIENCE).text
            except grpc.RpcError as error:
                self.assertEqual(error.code(), grpc.StatusCode.INVALID_ARGUMENT, error.details())
                return self.details(error)["ErrorInfo"].reason

        def by_grpc():
            try:
                return self.stub.Generate(request(QUESTION, picture), timeout=PATIENCE).text
            except grpc.RpcError as error:
                self.assertEqual(error.code(), grpc.StatusCode.INVALID_ARGUMENT, error.details())
                return self.details(error)["ErrorInfo"].reason

        def by_http():
            status, body = self.http(data_url(picture))
            if status == 200:
                return body["choices"][0]["message"]["content"]
            self.assertEqual(status, 400, body)
            self.assertLess(len(body["error"]["message"]), 500)
            return body["error"]["code"].upper()

        return [by_grpc, by_http, by_handle]

    def at_once(self, *pictures):
        """The same pictures in every way, AT_ONCE at a time; what was said."""
        calls = [way for picture in pictures for way in self.ways(picture)]
        calls = [calls[i % len(calls)] for i in range(3 * self.AT_ONCE)]
        with concurrent.futures.ThreadPoolExecutor(self.AT_ONCE) as pool:
            return {said for said in pool.map(lambda call: call(), calls)}

    def test_bombs_are_refused_by_their_headers_without_memory_or_a_word_of_them(self):
        png = one_colour_png(12000)
        self.assertLess(len(png), 1 << 20)
        lying = (GOLDENS / "images_bad" / "jpeg_claims_64250x64250.jpg").read_bytes()
        # Good ones of that size find the heap and the threads that so many requests take.
        for _ in range(2):
            self.assertEqual(self.at_once(PICTURE.ljust(len(png), b"\0")), {" 37"})
        log = len(self.server.text())
        before = self.forget_peak()
        for bomb in (png, lying):
            self.assertEqual(self.at_once(bomb), {"IMAGE_TOO_LARGE"})
        self.assertEqual(self.at_once(png, lying), {"IMAGE_TOO_LARGE"})
        grown = self.peak() - before
        print(f"{grown >> 10} KiB more at the peak")
        self.assertLess(grown, self.MOST_MORE)
        self.assertEqual(self.http_text(PICTURE), " 37")
        said = self.server.text()[log:]
        self.assertIn("IMAGE_TOO_LARGE", said)
        self.assertLess(max(map(len, said.splitlines())), 1000)
        for bomb in (png, lying):
            for at in (0, len(bomb) // 2 // 3 * 3):  # where base64 begins anew
                self.assertNotIn(base64.b64encode(bomb[at:at + 30]).decode(), said)


def with_exif_id(picture, image_id):
    """The JPEG with that ImageUniqueID (0xA420, 33 bytes of ASCII) in its EXIF block."""
    text = image_id.encode().ljust(32, b"0") + b"\0"
    ifd0 = struct.pack("<HHHIII", 1, 0x8769, 4, 1, 26, 0)  # one entry: where the EXIF directory is
    exif = struct.pack("<HHHIII", 1, 0xA420, 2, len(text), 44, 0)
    block = b"Exif\0\0" + b"II*\0" + struct.pack("<I", 8) + ifd0 + exif + text
    return picture[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block + picture[2:]


class NameTest(PictureBase):
    """FAULTS B039: a picture is its content, whatever it or its client calls it."""

    def test_pictures_with_one_id_in_their_exif_are_two(self):
        one, two = (with_exif_id(p, "c0ffee") for p in (PICTURE, OTHER))
        before = scrape(self.server).sum("tessera_vision_images_total", outcome="computed")
        for _ in range(2):
            self.assertEqual(self.stub.Generate(request(QUESTION, one), timeout=PATIENCE).text, " 37")
            self.assertEqual(self.stub.Generate(request(QUESTION, two), timeout=PATIENCE).text, " 25")
            self.assertEqual((self.http_text(one), self.http_text(two)), (" 37", " 25"))
        self.assertEqual(scrape(self.server).sum("tessera_vision_images_total", outcome="computed"), before + 2)

    def test_a_name_of_the_client_is_no_key(self):
        # Names that other servers take, and what we route by.
        names = {"uuid": "u", "id": "u", "image_id": "u", "cache_key": "u", "prompt_cache_key": "u", "user": "u"}
        for _ in range(2):
            self.assertEqual(self.http_text(PICTURE, **names), " 37")
            self.assertEqual(self.http_text(OTHER, **names), " 25")
            for picture, text in ((PICTURE, " 37"), (OTHER, " 25")):
                asked = request(QUESTION, picture)
                asked.session = "u"
                asked.messages[0].parts[0].image.inline_data.mime_type = "image/u"
                answer = self.stub.Generate(asked, metadata=[("x-request-id", "u"), ("x-image-id", "u")],
                                            timeout=PATIENCE)
                self.assertEqual(answer.text, text)
        # Nor are a handle's digits: another's cannot be made from one's own.
        mine = self.upload(PICTURE)
        error = self.refused(self.stub.Generate, request(QUESTION, handle=mine[:-4] + self.upload(OTHER)[-4:]))
        self.assertEqual(error.code(), grpc.StatusCode.NOT_FOUND)


class BadDataTest(PictureBase):
    """FAULTS B086: what is no picture is the client's fault, by name, and the same through both doors."""

    def cases(self):
        """URL; the code of both, or None where it is answered."""
        base = base64.b64encode(PICTURE).decode()
        lines = "\r\n".join(base[at:at + 76] for at in range(0, len(base), 76))
        url_safe = base.replace("+", "-").replace("/", "_")
        self.assertNotEqual(url_safe, base)

        def encoded(picture):
            return base64.b64encode(picture).decode()

        bad = GOLDENS / "images_bad"
        yield f"data:image/jpeg;base64{base}", "IMAGE_URL"  # no comma
        yield f"data:image/jpeg,{base}", "IMAGE_URL"
        yield f"data:image/jpeg;base64,{base[:-3]}*{base[-2:]}", "IMAGE_URL"
        yield f"data:image/jpeg;base64,{url_safe}", "IMAGE_URL"
        yield f"data:image/jpeg;base64,{base[:5]}", "IMAGE_URL"
        yield "data:image/jpeg;base64,", "IMAGE_EMPTY"
        yield "data:image/jpeg;base64, \n", "IMAGE_EMPTY"
        yield f"data:image/jpeg;base64,{encoded(b'A text is no picture.')}", "IMAGE_FORMAT"
        yield f"data:text/plain;base64,{encoded(b'A text is no picture.')}", "IMAGE_URL"
        yield f"data:image/gif;base64,{encoded((bad / 'gif.gif').read_bytes())}", "IMAGE_FORMAT"
        yield f"data:image/png;base64,{encoded((bad / 'gif_named.png').read_bytes())}", "IMAGE_FORMAT"
        yield f"data:image/jpeg;base64,{encoded(PICTURE[:len(PICTURE) // 2])}", "IMAGE_CORRUPT"
        yield f"data:image/jpeg;base64,{encoded(PICTURE[:20])}", "IMAGE_CORRUPT"
        yield "http://127.0.0.1:9/404.jpg", "IMAGE_URL"
        yield f"data:image/jpeg;base64,{lines}", None
        yield f"data:image/png;base64,{base}", None
        yield f"data:;base64,{base}", None

    def test_each_has_its_code_and_the_wrong_type_is_no_matter(self):
        for url, code in self.cases():
            status, body = self.http(url)
            asked = request(QUESTION)
            asked.messages[0].parts.insert(0, types_pb2.Part(image=types_pb2.Image(uri=url)))
            if code is None:
                self.assertEqual((status, body["choices"][0]["message"]["content"]), (200, " 37"))
                self.assertEqual(self.stub.Generate(asked, timeout=PATIENCE).text, " 37")
                continue
            self.assertEqual((status, body["error"]["code"]), (400, code.lower()), (url[:60], body))
            self.assertEqual(body["error"]["type"], "invalid_request_error")
            self.assertTrue(body["error"]["param"].startswith("messages[0].content[0].image_url"), body)
            self.assertLess(len(body["error"]["message"]), 500)
            self.assertEqual(self.grpc_refusal(asked), code, url[:60])
        self.assertEqual(self.http_text(PICTURE), " 37")

    def test_a_picture_costs_its_rows_not_its_base64(self):
        # FAULTS B087: 2 MiB, new and known.
        small = self.http(data_url(PICTURE))[1]["usage"]
        tiers = []
        for _ in range(3):
            status, body = self.http(data_url(PICTURE.ljust(2 << 20, b"\1")), tessera={"receipt": True})
            self.assertEqual((status, body["choices"][0]["message"]["content"]), (200, " 37"))
            usage = body["usage"]
            self.assertEqual(usage["prompt_tokens"], small["prompt_tokens"])
            details = usage["prompt_tokens_details"]
            self.assertEqual((details["image_tokens"], details["image_tokens"] + details["text_tokens"]),
                             (256, usage["prompt_tokens"]))
            tiers.append(body["tessera"]["receipt"]["images"][0]["cache"])
        self.assertEqual(tiers[0], "COMPUTED")
        self.assertNotIn("COMPUTED", tiers[1:])

    def test_a_url_of_this_machine_is_refused_and_nobody_calls_it(self):
        # FAULTS B090, while no host is allowed: however it is written.
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            port = listener.getsockname()[1]
            for host in ("127.0.0.1", "localhost", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0",
                         "[::1]", "[::ffff:127.0.0.1]", "a@127.0.0.1"):
                for scheme in ("http", "https", "HTTP", "ftp", "gopher", "ws"):
                    url = f"{scheme}://{host}:{port}/x.jpg"
                    status, body = self.http(url)
                    self.assertEqual((status, body["error"]["code"]), (400, "image_url"), url)
                    asked = request(QUESTION)
                    asked.messages[0].parts.insert(0, types_pb2.Part(image=types_pb2.Image(uri=url)))
                    self.assertEqual(self.grpc_refusal(asked), "IMAGE_URL", url)
            with self.assertRaises(BlockingIOError):
                listener.accept()


class ManyPicturesTest(PictureBase):
    PAGES = 20

    def counts(self):
        now = scrape(self.server)
        return (now.sum("tessera_vision_images_total", outcome="computed"),
                now.sum("tessera_decode_prefix_cache_hits_total"))

    def test_one_question_about_page_after_page_is_about_that_page(self):
        # FAULTS B037: what is found of the one before ends before the picture.
        alone = self.stub.Generate(request(QUESTION, PICTURE), timeout=PATIENCE).usage
        before_picture = alone.prompt_tokens - 256
        for page in range(1, self.PAGES):
            picture, text = ((PICTURE, " 37"), (OTHER, " 25"))[page % 2]
            answer = self.stub.Generate(request(QUESTION, picture + bytes(page)), timeout=PATIENCE)
            self.assertEqual(answer.text, text, page)
            self.assertEqual(answer.receipt.images[0].cache, types_pb2.CACHE_TIER_COMPUTED)
            self.assertLess(answer.usage.cached_tokens, before_picture)
        again = self.stub.Generate(request(QUESTION, PICTURE), timeout=PATIENCE)
        self.assertEqual(again.text, " 37")
        self.assertGreater(again.usage.cached_tokens, 256)

    def test_a_second_picture_keeps_what_is_known_of_the_first(self):
        # FAULTS B043.
        first, second = PICTURE + b"\2", OTHER + b"\2"
        self.stub.Generate(request(QUESTION, first), timeout=PATIENCE)
        computed, hits = self.counts()
        answer = self.stub.Generate(request(QUESTION, first, second), timeout=PATIENCE)
        self.assertEqual([image.cache for image in answer.receipt.images],
                         [types_pb2.CACHE_TIER_PREFIX_KV, types_pb2.CACHE_TIER_COMPUTED])
        now = self.counts()
        self.assertEqual(now[0], computed + 1)
        self.assertGreaterEqual(now[1], hits + 256)
        self.assertGreaterEqual(answer.usage.cached_tokens, 256)


class Watch:
    """What is opened in a folder, by whomever, as the kernel tells it."""

    OPEN = 0x20

    def __init__(self, folder):
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self.fd >= 0 and libc.inotify_add_watch(self.fd, os.fsencode(folder), self.OPEN) >= 0

    def opened(self):
        names = set()
        try:
            while True:
                told = os.read(self.fd, 65536)
                while told:
                    size = struct.unpack_from("iIII", told)[3]
                    names.add(told[16:16 + size].rstrip(b"\0").decode())
                    told = told[16 + size:]
        except BlockingIOError:
            return names

    def close(self):
        os.close(self.fd)


class PathTest(PictureBase):
    """FAULTS B091: in the place of a picture, a path is no path."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-paths-"))
        self.addCleanup(lambda: [p.unlink() for p in self.folder.iterdir()] + [self.folder.rmdir()])
        self.picture = self.folder / "x.png"
        self.picture.write_bytes(PICTURE)
        (self.folder / "link.png").symlink_to(self.picture)
        (self.folder / "passwd").symlink_to("/etc/passwd")
        os.mkfifo(self.folder / "pipe")  # who opens it waits for ever
        self.watch = Watch(self.folder)
        self.addCleanup(self.watch.close)

    def urls(self):
        relative = os.path.relpath(self.folder, pathlib.Path(f"/proc/{self.server.process.pid}/cwd").resolve())
        yield from ("/etc/passwd", "file:///etc/passwd", "../x.png", "x.png", "file:x.png", "/proc/self/fd/0")
        for name in ("x.png", "link.png", "passwd", "pipe"):
            path = self.folder / name
            yield from (str(path), f"file://{path}", f"file://localhost{path}", f"FILE:{path}", f"{relative}/{name}",
                        f"data:{path}", f"data:image/png,{path}", f"data:image/png;base64,file://{path}",
                        f"data:file://{path};base64,", f"%2F{str(path)[1:]}")

    def test_no_path_is_opened(self):
        self.picture.read_bytes()
        self.assertEqual(self.watch.opened(), {"x.png"}, "the watch sees nothing")
        for url in self.urls():
            status, body = self.http(url)
            self.assertEqual(status, 400, (url, body))
            self.assertTrue(body["error"]["param"].startswith("messages[0].content[0].image_url"), (url, body))
            image = types_pb2.Image(uri=url)
            asked = gateway_pb2.GenerateRequest(messages=[types_pb2.Message(
                role="user", parts=[types_pb2.Part(image=image), types_pb2.Part(text=QUESTION)])])
            reason = self.grpc_refusal(asked)
            self.assertIn(reason, ("IMAGE_URL", "IMAGE_FORMAT", "IMAGE_EMPTY"), url)
            # A path in the place of the bytes, of their type, and of a handle.
            self.assertEqual(self.grpc_refusal(request(QUESTION, url.encode())), "IMAGE_FORMAT", url)
            typed = request(QUESTION, b"x")
            typed.messages[0].parts[0].image.inline_data.mime_type = url
            self.assertEqual(self.grpc_refusal(typed), "IMAGE_FORMAT", url)
            error = self.refused(self.stub.Generate, request(QUESTION, handle=url))
            self.assertEqual(error.code(), grpc.StatusCode.NOT_FOUND, url)
            self.assertEqual(self.http("tessera-image:" + url)[0], 404, url)
            self.assertEqual(self.watch.opened(), set(), url)
        # Nobody waits for the pipe's other end either.
        with self.assertRaises(OSError):
            os.close(os.open(self.folder / "pipe", os.O_WRONLY | os.O_NONBLOCK))
        self.assertEqual(self.http_text(PICTURE), " 37")


if __name__ == "__main__":
    unittest.main()
