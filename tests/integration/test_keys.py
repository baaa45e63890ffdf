"""Bearer keys and certificates at a server, by public clients: who is answered, and what is never told."""

import hashlib
import json
import pathlib
import tempfile
import unittest
import urllib.error
import urllib.request

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from certificates import Authority
from client import PATIENCE, PICTURE, QUESTION, Base, gateway_pb2, gateway_pb2_grpc, request
from harness import MODEL, Server, run

KEY, OTHER_KEY = "key-of-one-7f3a", "key-of-two-91bc"
SHELF = MODEL / "demo" / "shelf1.jpg"


def line(tenant, key):
    return f"{tenant} sha256:{hashlib.sha256(key.encode()).hexdigest()}\n"


def bearer(key):
    return [("authorization", f"Bearer {key}")]


class KeysTest(Base):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.keys = pathlib.Path(cls.folder.name) / "keys"
        cls.keys.write_text(line("one", KEY) + line("two", OTHER_KEY))
        cls.flags = ("--api_keys_file", str(cls.keys), "--http_address", "127.0.0.1:0")
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def test_a_call_without_a_key_is_unauthenticated_and_says_why(self):
        for metadata, reason in [([], "KEY_MISSING"), ([("authorization", "Basic abc")], "KEY_MISSING"),
                                 (bearer(KEY) + bearer(OTHER_KEY), "KEY_MISSING"),
                                 (bearer("nobody's"), "KEY_UNKNOWN")]:
            with self.assertRaises(grpc.RpcError) as caught:
                self.stub.Generate(request(QUESTION, PICTURE), metadata=metadata, timeout=PATIENCE)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAUTHENTICATED)
            self.assertEqual(self.details(caught.exception)["ErrorInfo"].reason, reason)
        answer = self.stub.Generate(request(QUESTION, PICTURE), metadata=bearer(KEY), timeout=PATIENCE)
        self.assertEqual(answer.text, " 37")

    def test_the_handle_of_another_tenant_is_not_found(self):
        upload = self.stub.UploadImage(iter([gateway_pb2.UploadImageRequest(data=PICTURE)]),
                                       metadata=bearer(KEY), timeout=PATIENCE)
        with self.assertRaises(grpc.RpcError) as caught:
            self.stub.Generate(request(QUESTION, handle=upload.handle), metadata=bearer(OTHER_KEY),
                               timeout=PATIENCE)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)
        answer = self.stub.Generate(request(QUESTION, handle=upload.handle), metadata=bearer(KEY),
                                    timeout=PATIENCE)
        self.assertEqual(answer.text, " 37")

    def test_health_is_open_and_reflection_is_off(self):
        health = health_pb2_grpc.HealthStub(self.channel)
        answer = health.Check(health_pb2.HealthCheckRequest(service="readiness"), timeout=PATIENCE)
        self.assertEqual(answer.status, health_pb2.HealthCheckResponse.SERVING)
        reflection = reflection_pb2_grpc.ServerReflectionStub(self.channel)
        with self.assertRaises(grpc.RpcError) as caught:
            list(reflection.ServerReflectionInfo(
                iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=PATIENCE))
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED)

    def test_http_asks_for_the_same_keys(self):
        url = f"http://{self.server._told('HTTP')}/v1/models"
        with self.assertRaises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(url, timeout=PATIENCE)
        self.assertEqual(caught.exception.code, 401)
        self.assertEqual(json.loads(caught.exception.read())["error"]["type"], "authentication_error")
        asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {KEY}"})
        with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
            self.assertEqual(answer.status, 200)

    def test_the_command_line_sends_the_key_of_the_flag_or_the_variable(self):
        ask = ("ask", "--address", self.server.address, "--image", SHELF, QUESTION)
        code, _, err = run(*ask)
        self.assertEqual(code, 1)
        self.assertIn("UNAUTHENTICATED (KEY_MISSING)", err)
        self.assertIn("TESSERA_API_KEY", err)
        for code, out, err in (run(*ask, "--api_key", KEY), run(*ask, env={"TESSERA_API_KEY": KEY})):
            self.assertEqual((code, out.strip()), (0, "37"), err)
        code, out, err = run("bench", "serve", "--address", self.server.address, "--questions",
                             MODEL / "eval" / "eval.jsonl", "--sessions", "2", "--warmup", "0", "--json",
                             env={"TESSERA_API_KEY": KEY})
        self.assertEqual(code, 0, err)
        self.assertNotIn(KEY, out + err)

    def test_no_key_is_ever_told(self):
        for args in (["ask", "--help"], ["bench", "serve", "--help"], ["ask", "--no_such_flag"],
                     ["ask", "--api_key", f"{KEY} {KEY}", QUESTION]):
            _, out, err = run(*args, env={"TESSERA_API_KEY": KEY})
            self.assertNotIn(KEY, out + err)
        self.assertIn(f"--api_keys_file={self.keys}", self.server.text())
        for secret in (KEY, OTHER_KEY, hashlib.sha256(KEY.encode()).hexdigest()):
            self.assertNotIn(secret, self.server.text())


class ReloadTest(unittest.TestCase):
    def test_a_new_file_of_keys_is_used_and_a_broken_one_is_not(self):
        import os
        import time
        with tempfile.TemporaryDirectory() as folder:
            keys = pathlib.Path(folder) / "keys"

            def replace(text):
                fresh = pathlib.Path(folder) / "fresh"
                fresh.write_text(text)
                os.replace(fresh, keys)

            replace(line("one", KEY))
            with Server("--api_keys_file", keys) as server, grpc.insecure_channel(server.address) as channel:
                stub = gateway_pb2_grpc.GatewayServiceStub(channel)

                def known(key):
                    try:
                        stub.GetModelInfo(gateway_pb2.GetModelInfoRequest(), metadata=bearer(key),
                                          timeout=PATIENCE)
                        return True
                    except grpc.RpcError as error:
                        self.assertEqual(error.code(), grpc.StatusCode.UNAUTHENTICATED)
                        return False

                def becomes_known(condition):
                    end = time.monotonic() + PATIENCE
                    while not condition():
                        self.assertLess(time.monotonic(), end)
                        time.sleep(0.05)

                self.assertTrue(known(KEY))
                replace("broken\n")
                becomes_known(lambda: known(KEY) and "the old keys stay in use" in server.text())
                replace(line("two", OTHER_KEY))
                becomes_known(lambda: known(OTHER_KEY))
                self.assertFalse(known(KEY))


class TlsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        authority = Authority(cls.folder.name)
        for name in ("server", "client"):
            authority.issue(name)
        cls.file("keys").write_text(line("one", KEY))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def file(cls, name):
        return pathlib.Path(cls.folder.name) / name

    def credentials(self, client=False):
        own = {"private_key": self.file("client.key").read_bytes(),
               "certificate_chain": self.file("client.pem").read_bytes()} if client else {}
        return grpc.ssl_channel_credentials(self.file("ca.pem").read_bytes(), **own)

    def ask(self, server, credentials):
        with grpc.secure_channel(server.address, credentials) as channel:
            return gateway_pb2_grpc.GatewayServiceStub(channel).GetModelInfo(
                gateway_pb2.GetModelInfoRequest(), metadata=bearer(KEY), timeout=PATIENCE)

    def test_python_and_our_own_command_ask_over_tls(self):
        with Server("--api_keys_file", self.file("keys"), "--tls_cert_file", self.file("server.pem"),
                    "--tls_key_file", self.file("server.key")) as server:
            self.assertEqual(self.ask(server, self.credentials()).model, "shelf-vqa")
            ask = ("ask", "--address", server.address, "--image", SHELF, "--api_key", KEY, QUESTION)
            code, out, err = run(*ask, "--tls_ca_file", self.file("ca.pem"))
            self.assertEqual((code, out.strip()), (0, "37"), err)
            code, _, err = run(*ask)
            self.assertEqual(code, 1)
            self.assertIn("UNAVAILABLE", err)

    def test_with_an_authority_for_clients_a_certificate_is_asked_for(self):
        with Server("--api_keys_file", self.file("keys"), "--tls_cert_file", self.file("server.pem"),
                    "--tls_key_file", self.file("server.key"), "--tls_client_ca_file",
                    self.file("ca.pem")) as server:
            self.assertEqual(self.ask(server, self.credentials(client=True)).model, "shelf-vqa")
            with self.assertRaises(grpc.RpcError) as caught:
                self.ask(server, self.credentials())
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
            ask = ["ask", "--address", server.address, "--tls_ca_file", self.file("ca.pem"),
                   "--api_key", KEY, "--image", SHELF, QUESTION]
            code, out, err = run(*ask, "--tls_cert_file", self.file("client.pem"),
                                 "--tls_key_file", self.file("client.key"))
            self.assertEqual((code, out.strip()), (0, "37"), err)
            code, _, err = run(*ask)
            self.assertEqual(code, 1)
            self.assertIn("--tls_cert_file", err)
            code, _, err = run("ask", "--address", server.address, QUESTION)  # not over TLS at all
            self.assertEqual(code, 1)
            self.assertIn("--tls_ca_file", err)


class UsageTest(unittest.TestCase):
    def test_what_cannot_be_is_wrong_usage_and_names_the_flag(self):
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder) / "text"
            text.write_text("one in-plain-text\n")
            for args, words in [
                (["--api_keys_file", text], ["--api_keys_file", "line 1"]),
                (["--api_keys_file", "absent"], ["--api_keys_file", "absent"]),
                (["--tls_cert_file", text, "--tls_key_file", text], ["--tls_cert_file", "no certificate"]),
                (["--tls_cert_file", text], ["--tls_key_file", "missing"]),
                (["--tls_client_ca_file", text], ["--tls_client_ca_file", "--tls_cert_file"]),
                (["--grpc_address", "0.0.0.0:0"], ["--grpc_address", "--allow_unauthenticated_network"]),
            ]:
                with self.subTest(args=args):
                    code, _, err = run("serve", "--model", MODEL, *args,
                                       env={"TESSERA_GRPC_ADDRESS": "127.0.0.1:0"})
                    self.assertEqual(code, 2, err)
                    for word in words:
                        self.assertIn(word, err)
                    self.assertNotIn("in-plain-text", err)

    def test_the_operator_may_open_the_network(self):
        with Server("--allow_unauthenticated_network", "on", "--http_address", "0.0.0.0:0") as server:
            self.assertIn("ready", server.text())


if __name__ == "__main__":
    unittest.main()
