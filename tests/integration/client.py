"""gRPC clients of the public packages: generated code, requests, a test class with a server of its own."""

import base64
import http.client
import json
import unittest

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from harness import MODEL, Server, generate_stubs

generate_stubs()
from tessera.v1 import gateway_pb2, gateway_pb2_grpc, types_pb2  # noqa: E402

PICTURE = (MODEL / "demo" / "shelf1.jpg").read_bytes()
OTHER = (MODEL / "demo" / "shelf3.jpg").read_bytes()
QUESTION = "What is the price on row 2?"
# Of one call, in seconds: far more than any call takes, however slow the machine is.
PATIENCE = 300
# Of a channel: a long answer with log probabilities that is not read is not made to its end either.
UNREAD = [("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0)]


def request(text, *pictures, handle=None, **options):
    parts = [types_pb2.Part(image=types_pb2.Image(inline_data=types_pb2.InlineData(data=p)))
             for p in pictures]
    if handle:
        parts.append(types_pb2.Part(image=types_pb2.Image(handle=handle)))
    if text is not None:
        parts.append(types_pb2.Part(text=text))
    return gateway_pb2.GenerateRequest(
        messages=[types_pb2.Message(role="user", parts=parts)],
        options=types_pb2.GenerationOptions(**options))


def data_url(picture):
    return "data:image/jpeg;base64," + base64.b64encode(picture).decode()


def post_chat(address, body, key=None):
    """Status, headers and JSON of a chat request over HTTP; `body` is an object or its text."""
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    connection = http.client.HTTPConnection(address, timeout=PATIENCE)
    try:
        connection.request("POST", "/v1/chat/completions", body if isinstance(body, str) else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, json.loads(answer.read())
    finally:
        connection.close()


def error_details(error):
    """What an error of a call carries, by the names of the messages."""
    found = {}
    try:
        status = rpc_status.from_call(error)
    except ValueError:  # the client ended the call by its own clock while the server's word came
        return found
    for any_message in status.details if status else ():
        for kind in (error_details_pb2.ErrorInfo, error_details_pb2.RetryInfo,
                     error_details_pb2.BadRequest, error_details_pb2.ResourceInfo):
            message = kind()
            if any_message.Unpack(message):
                found[kind.__name__] = message
    return found


class Base(unittest.TestCase):
    flags = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.flags)
        cls.channel = grpc.insecure_channel(
            cls.server.address, options=[("grpc.max_send_message_length", -1)])
        cls.stub = gateway_pb2_grpc.GatewayServiceStub(cls.channel)

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        cls.server.__exit__()

    def refused(self, call, *args):
        with self.assertRaises(grpc.RpcError) as caught:
            call(*args, timeout=PATIENCE)
        return caught.exception

    def details(self, error):
        return error_details(error)
