#include "tools/ask.h"

#include <grpcpp/client_context.h>

#include <chrono>
#include <istream>
#include <iterator>
#include <memory>
#include <ostream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "common/text/utf8.h"
#include "tessera/v1/gateway.grpc.pb.h"
#include "tools/report/receipt_text.h"

namespace tessera::tools {
namespace {

constexpr size_t kMaxImageBytes = size_t{256} << 20;  // the server has its own, smaller limit

absl::StatusOr<v1::GenerateRequest> MakeRequest(const AskOptions& options) {
  v1::GenerateRequest request;
  v1::Message& message = *request.add_messages();
  message.set_role("user");
  for (const std::string& path : options.images) {
    ASSIGN_OR_RETURN(std::string bytes, base::ReadFile(path, kMaxImageBytes));
    message.add_parts()->mutable_image()->mutable_inline_data()->set_data(std::move(bytes));
  }
  message.add_parts()->set_text(options.question);
  v1::GenerationOptions& generation = *request.mutable_options();
  generation.set_max_tokens(options.max_tokens);
  generation.set_temperature(options.temperature);
  if (options.has_seed) generation.set_seed(options.seed);
  if (options.has_top_logprobs) generation.set_top_logprobs(options.top_logprobs);
  for (const std::string& stop : options.stop) generation.add_stop(stop);
  request.set_session(options.session);
  return request;
}

// gRPC tells a wrong port and TLS on one side alone only in its words.
std::string ConnectionAdvice(const absl::Status& status, const DialOptions& dial) {
  const absl::string_view said = status.message();
  if (absl::StrContains(said, "http1.x")) return "that is an HTTP port: give the one of gRPC";
  if (absl::StrContains(said, "Socket closed") || absl::StrContains(said, "recvmsg")) {
    return dial.tls_ca_file.empty() ? "if it serves TLS, give --tls_ca_file"
                                    : "if it asks for a certificate, give --tls_cert_file and "
                                      "--tls_key_file";
  }
  if (absl::StrContains(absl::AsciiStrToLower(said), "handshake") ||
      absl::StrContains(said, "SSL")) {
    return "does it serve TLS, with a certificate of --tls_ca_file for this name?";
  }
  const std::string proxy = ProxyNotice();
  return absl::StrCat("tessera serve starts one, and --model DIR answers without one",
                      proxy.empty() ? "" : "; ", proxy);
}

// What does not say what to do here: gRPC's own errors, which carry no reason, and a missing key.
absl::Status WithAdvice(const absl::Status& status, const AskOptions& options) {
  if (base::ReasonOf(status) == "KEY_MISSING") {
    return base::Error(status.code(), "KEY_MISSING",
                       "this server asks for a key: give --api_key, or set TESSERA_API_KEY");
  }
  if (status.ok() || !base::ReasonOf(status).empty()) return status;
  if (status.code() == absl::StatusCode::kDeadlineExceeded) {
    return base::Error(status.code(), "TIMEOUT",
                       absl::StrCat("the answer was not whole after --timeout ",
                                    absl::FormatDuration(options.timeout), "; give it longer"));
  }
  if (status.code() != absl::StatusCode::kUnavailable || options.local) return status;
  return base::Error(status.code(), "NO_SERVER",
                     absl::StrCat("no connection to a server at ", options.dial.address, " (",
                                  status.message(), "); ", ConnectionAdvice(status, options.dial)));
}

absl::Status StreamAnswer(const std::shared_ptr<grpc::Channel>& channel,
                          const v1::GenerateRequest& request, const AskOptions& options,
                          std::ostream& out) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       absl::ToChronoMicroseconds(options.timeout));
  AddKey(options.dial.api_key, context);
  v1::GenerateStreamRequest stream_request;
  *stream_request.mutable_request() = request;
  const auto stub = v1::GatewayService::NewStub(channel);
  const auto reader = stub->GenerateStream(&context, stream_request);
  std::string text;
  bool shown = false;
  LogprobList logprobs;
  v1::GenerateResponse end;
  v1::GenerateStreamResponse response;
  while (reader->Read(&response)) {
    if (response.has_end()) {
      end = response.end();
      continue;
    }
    text += response.text();
    logprobs.MergeFrom(response.logprobs());
    if (options.json) continue;
    // Many models begin an answer with a space.
    const absl::string_view piece = response.text();
    const absl::string_view rest = shown ? piece : absl::StripLeadingAsciiWhitespace(piece);
    shown = shown || !rest.empty();
    out << rest << std::flush;
  }
  const grpc::Status status = reader->Finish();
  if (!options.json && !text.empty()) out << "\n";
  RETURN_IF_ERROR(WithAdvice(rpc::FromGrpc(status), options));
  if (options.json) {
    base::Json answer = AnswerJson(text, end);
    if (options.has_top_logprobs) answer["logprobs"] = LogprobsJson(logprobs);
    out << answer.dump(2) << "\n";
  }
  if (options.receipt && !options.json) out << ReceiptTable(end);
  return absl::OkStatus();
}

}  // namespace

absl::Status Ask(AskOptions options, std::istream& in, std::ostream& out) {
  if (options.question == "-") {
    options.question.assign(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    options.question = std::string(absl::StripTrailingAsciiWhitespace(options.question));
  }
  if (const absl::Status valid = text::ValidateUtf8(options.question); !valid.ok()) {
    return base::Annotate(valid, "the question");
  }
  ASSIGN_OR_RETURN(const v1::GenerateRequest request, MakeRequest(options));
  if (!options.local) {
    DialOptions dial = options.dial;
    dial.connect_timeout = options.timeout;
    ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, Dial(dial));
    return StreamAnswer(channel, request, options, out);
  }
  ApplyServiceFlags(options.serve);
  options.serve.server.grpc_address.clear();
  options.serve.server.ops_address.clear();
  options.serve.server.reflection = false;
  ASSIGN_OR_RETURN(const std::unique_ptr<LocalServer> server,
                   LocalServer::Start(options.serve.server));
  return StreamAnswer(server->Channel(), request, options, out);
}

}  // namespace tessera::tools
