"""Uploads, and that calls of every kind leave no memory behind."""

import collections
import threading
import unittest

import grpc

from client import PATIENCE, PICTURE, QUESTION, Base, gateway_pb2, request


def resident(server):
    """Kilobytes."""
    with open(f"/proc/{server.process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


class MemoryTest(Base):
    flags = ("--kv_cache_bytes", "8MiB")

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
            grown = []
            # What one call may keep is far below the 30 kB that a lost call object takes. A leak shows
            # in each round; a heap or a pool of threads that still finds its size comes to rest.
            while len(grown) < 5 and (len(grown) < 2 or min(grown[1:]) >= 16):
                before = resident(self.server)
                for _ in range(300):
                    call()
                grown.append((resident(self.server) - before) / 300)
            self.assertLess(min(grown[1:]), 16, (name, grown))


class UploadMemoryTest(Base):
    flags = ("--max_upload_bytes", "16MiB", "--max_image_bytes", "8MiB", "--deadline_cap", "1h")

    def test_uploads_that_never_end_hold_no_more_than_their_budget(self):
        release = threading.Event()

        def unfinished():
            for _ in range(8):
                yield gateway_pb2.UploadImageRequest(data=b"x" * (1 << 20))
            release.wait(3600)

        self.stub.UploadImage(iter([gateway_pb2.UploadImageRequest(data=PICTURE)]))
        before = resident(self.server)
        calls = [self.stub.UploadImage.future(unfinished()) for _ in range(60)]  # 480 MiB in all
        refused = threading.Semaphore(0)
        for call in calls:
            call.add_done_callback(lambda _: refused.release())
        try:
            # The budget holds two of them at most; all others are told to come again.
            for _ in range(58):
                self.assertTrue(refused.acquire(timeout=PATIENCE))
            # The budget, its copies, and of each call the message of 1 MiB that it had on its way.
            self.assertLess((resident(self.server) - before) / 1024, 240)
        finally:
            for call in calls:
                call.cancel()
            release.set()  # behind the calls' end: else two would be finished uploads
        codes = collections.Counter(call.code() for call in calls)
        # Each takes the budget piece by piece, so that the last two may also stand in each other's way.
        self.assertGreaterEqual(codes[grpc.StatusCode.RESOURCE_EXHAUSTED], 58, codes)
        self.assertLessEqual(set(codes), {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED})
        self.assertEqual(self.stub.Generate(request(QUESTION, PICTURE), timeout=PATIENCE).text.strip(), "37")


if __name__ == "__main__":
    unittest.main()
