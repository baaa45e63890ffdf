"""A whole fleet over TLS: every hop asks for certificates, and takes up new ones while it answers."""

import base64
import hashlib
import http.client
import json
import os
import pathlib
import ssl
import tempfile
import threading
import unittest

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it would tell of every handshake that shall fail
import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from certificates import Authority, replace
from client import PATIENCE, PICTURE, QUESTION, gateway_pb2_grpc, request
from fleet import Fleet, wait_until
from series import Scrape
from test_services import get_page
from tessera.v1 import types_pb2

KEY = "a-key-of-the-fleet-with-enough-letters"
BEARER = {"authorization": f"Bearer {KEY}"}
ANSWER = "37"


class TlsFleetTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        root = pathlib.Path(folder.name)
        self.authorities = []
        for name in ("old", "new"):
            (root / name).mkdir()
            self.authorities.append(Authority(root / name))
            for part in ("server", "client"):
                self.authorities[-1].issue(part)
        self.live = root / "live"  # what the services read
        self.live.mkdir()
        self.authority = self.authorities[0]
        for name in ("ca.pem", "server.pem", "server.key", "client.pem", "client.key"):
            self.put(name, self.authority.file(name).read_bytes())
        (self.live / "keys").write_text(f"one sha256:{hashlib.sha256(KEY.encode()).hexdigest()}\n")
        self.fleet = self.start()
        self.addCleanup(self.fleet.close)

    def put(self, name, content):
        replace(self.live / name, content)

    def start(self):
        ca, cert, key, client, client_key = (
            self.live / name for name in ("ca.pem", "server.pem", "server.key", "client.pem", "client.key"))
        server = ["--tls_cert_file", cert, "--tls_key_file", key, "--tls_client_ca_file", ca]
        peer = ["--peer_tls", "on", "--peer_tls_ca_file", ca, "--peer_tls_cert_file", client,
                "--peer_tls_key_file", client_key]
        store = [f"--embedding_store_tls_{what}" for what in ("ca_file", "cert_file", "key_file")]
        redis = self.authorities[0]  # Redis reads its files once
        return Fleet(
            flags=[*server, *(part for pair in zip(store, map(redis.file, ("ca.pem", "client.pem", "client.key")))
                              for part in pair)],
            decode_flags=peer,
            gateway_flags=[*peer, "--tls_cert_file", cert, "--tls_key_file", key, "--load_silence", "60s",
                           "--api_keys_file", self.live / "keys"],
            redis_tls=["--tls-ca-cert-file", redis.file("ca.pem"), "--tls-cert-file", redis.file("server.pem"),
                       "--tls-key-file", redis.file("server.key"), "--tls-auth-clients", "yes"])

    def ask(self, channel):
        return gateway_pb2_grpc.GatewayServiceStub(channel).Generate(
            request(QUESTION, PICTURE), metadata=list(BEARER.items()), timeout=PATIENCE)

    def channel(self, address, authority, client=None):
        own = {"private_key": client.file("client.key").read_bytes(),
               "certificate_chain": client.file("client.pem").read_bytes()} if client else {}
        channel = grpc.secure_channel(
            address, grpc.ssl_channel_credentials(authority.file("ca.pem").read_bytes(), **own),
            options=[("grpc.use_local_subchannel_pool", 1)])
        self.addCleanup(channel.close)
        return channel

    def health(self, channel):
        return health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service="readiness"), timeout=PATIENCE).status

    def over_https(self, authority):
        context = ssl.create_default_context(cafile=authority.file("ca.pem"))
        connection = http.client.HTTPSConnection(self.fleet.http_address, context=context, timeout=PATIENCE)
        url = "data:image/jpeg;base64," + base64.b64encode(PICTURE).decode()
        body = {"model": "tessera", "messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": QUESTION}]}]}
        connection.request("POST", "/v1/chat/completions", json.dumps(body),
                           {"Content-Type": "application/json", **BEARER})
        answer = connection.getresponse()
        try:
            self.assertEqual(answer.status, 200)
            return json.load(answer)["choices"][0]["message"]["content"]
        finally:
            connection.close()

    def shows(self, address, authority, client):
        """Whether a server's certificate is of that authority, and it believes that client's."""
        try:
            with self.channel(address, authority, client) as channel:
                return health_pb2_grpc.HealthStub(channel).Check(
                    health_pb2.HealthCheckRequest(service="readiness"),
                    timeout=5).status == health_pb2.HealthCheckResponse.SERVING
        except grpc.RpcError:
            return False

    def test_the_answer_is_that_of_plain_connections(self):
        channel = self.channel(self.fleet.address, self.authority)
        first = self.ask(channel)
        self.assertEqual(first.text.strip(), ANSWER)
        self.assertEqual(first.receipt.images[0].cache, types_pb2.CACHE_TIER_COMPUTED)
        wait_until(lambda: Scrape(get_page(self.fleet.vision[0], "/metrics")).sum(
            "tessera_embedding_cache_transferred_bytes_total", direction="write") > 0, "Redis has the rows")
        self.fleet.restart("decode", self.fleet.decode[0])
        again = self.ask(channel)
        self.assertEqual(again.text.strip(), ANSWER)
        self.assertEqual(again.receipt.images[0].cache, types_pb2.CACHE_TIER_STORE)  # over rediss://
        self.assertEqual(self.over_https(self.authority).strip(), ANSWER)
        # Vision is asked for rows over TLS where Redis is gone.
        self.fleet.redis.kill()
        self.fleet.restart("decode", self.fleet.decode[0])
        origin = self.ask(channel)
        self.assertEqual(origin.text.strip(), ANSWER)
        self.assertEqual(origin.receipt.images[0].cache, types_pb2.CACHE_TIER_ORIGIN)

    def test_who_shows_no_certificate_is_refused_inside(self):
        for process in (self.fleet.vision[0], self.fleet.decode[0]):
            with self.subTest(process.name):
                known = self.channel(process.address, self.authority, self.authority)
                self.assertEqual(self.health(known), health_pb2.HealthCheckResponse.SERVING)
                for stranger in (None, self.authorities[1]):  # none, and one of another authority
                    with self.assertRaises(grpc.RpcError) as caught:
                        self.health(self.channel(process.address, self.authority, stranger))
                    self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
                plain = grpc.insecure_channel(process.address)
                self.addCleanup(plain.close)
                with self.assertRaises(grpc.RpcError) as caught:
                    self.health(plain)
                self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)

    def test_a_new_authority_takes_over_while_requests_run(self):
        old, new = self.authorities
        channel = self.channel(self.fleet.address, old)
        stop, texts, errors = threading.Event(), [], []

        def keep_asking():
            while not stop.wait(0.05):
                try:
                    texts.append(self.ask(channel).text.strip())
                except grpc.RpcError as error:
                    errors.append(error)

        asking = threading.Thread(target=keep_asking)
        asking.start()
        try:
            inner = [process.address for process in (self.fleet.vision[0], self.fleet.decode[0])]
            self.put("ca.pem", old.file("ca.pem").read_bytes() + new.file("ca.pem").read_bytes())
            for address in inner:
                wait_until(lambda: self.shows(address, old, new), f"{address} believes both authorities")
            for name in ("server", "client"):
                for end in ("key", "pem"):
                    self.put(f"{name}.{end}", new.file(f"{name}.{end}").read_bytes())
            for address in (*inner, self.fleet.address):
                wait_until(lambda: self.shows(address, new, new), f"{address} shows the new certificate")
            self.put("ca.pem", new.file("ca.pem").read_bytes())
            for address in inner:
                wait_until(lambda: not self.shows(address, new, old), f"{address} has forgotten the old authority")
            seen = len(texts)
            wait_until(lambda: len(texts) > seen, "requests run to the end of it")
        finally:
            stop.set()
            asking.join(PATIENCE)
        self.assertEqual(errors, [])
        self.assertEqual(set(texts), {ANSWER})
        self.assertEqual(self.over_https(new).strip(), ANSWER)
        # New connections between the services: they show and believe the new certificates.
        self.fleet.restart("decode", self.fleet.decode[0])
        self.fleet.restart("vision", self.fleet.vision[0])
        answer = self.ask(self.channel(self.fleet.address, new))
        self.assertEqual(answer.text.strip(), ANSWER)


if __name__ == "__main__":
    unittest.main()
