// What an answer of the bundled model costs: time to first token of pictures never seen before and
// of second questions, what gateway and both hops add, peak memory. One client, one server, one
// process.
#include <grpcpp/client_context.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/rpc/channel.h"
#include "tessera/v1/gateway.grpc.pb.h"
#include "tools/local_server.h"

namespace tessera {
namespace {

constexpr char kModel[] = "models/shelf-vqa";
// 20 tokens with the bundled tokenizer, as a question on a shelf goes.
constexpr char kQuestion[] = "What kind of item is in row 2, column 4?";

struct Timing {
  double first_text = 0;  // seconds, by the client
  double total = 0;
  v1::GenerateResponse end;
};

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Timing Ask(v1::GatewayService::Stub& stub, const std::string& picture) {
  v1::GenerateStreamRequest request;
  v1::Message& message = *request.mutable_request()->add_messages();
  message.set_role("user");
  message.add_parts()->mutable_image()->mutable_inline_data()->set_data(picture);
  message.add_parts()->set_text(kQuestion);
  Timing timing;
  grpc::ClientContext context;
  const auto start = std::chrono::steady_clock::now();
  const auto reader = stub.GenerateStream(&context, request);
  v1::GenerateStreamResponse event;
  while (reader->Read(&event)) {
    if (event.has_end()) {
      timing.end = event.end();
    } else if (timing.first_text == 0) {
      timing.first_text = SecondsSince(start);
    }
  }
  const grpc::Status status = reader->Finish();
  timing.total = SecondsSince(start);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.error_message().c_str());
    std::exit(1);
  }
  return timing;
}

// What the services' own stages do not explain.
double Added(const Timing& timing) {
  const v1::StageSeconds& s = timing.end.receipt().stages();
  return timing.total - s.queue_seconds() - s.fetch_seconds() - s.image_decode_seconds() -
         s.preprocess_seconds() - s.encode_seconds() - s.store_seconds() - s.prefill_seconds() -
         s.generation_seconds();
}

void Print(const char* name, std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const size_t n = seconds.size();
  std::printf("%-44s median %8.2f ms   p90 %8.2f ms   n %zu\n", name, seconds[n / 2] * 1e3,
              seconds[n * 9 / 10] * 1e3, n);
}

std::string PeakMemory() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.rfind("VmHWM", 0) == 0) return line;
  }
  return "VmHWM: unknown";
}

int Main() {
  tools::LocalServerOptions options;
  options.model_dir = kModel;
  options.grpc_address = "127.0.0.1:0";
  options.reflection = false;
  auto server = tools::LocalServer::Start(std::move(options));
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    return 1;
  }
  const auto channel = rpc::Connect("127.0.0.1:" + std::to_string((*server)->port()));
  const auto stub = v1::GatewayService::NewStub(channel);
  std::vector<std::string> pictures;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(kModel) + "/eval/pictures")) {
    pictures.push_back(base::ReadFile(entry.path()).value());
  }
  Ask(*stub, base::ReadFile(std::string(kModel) + "/demo/shelf1.jpg").value());  // warm-up
  std::vector<double> cold, second, added_cold, added_second, decode, encode, prefill;
  std::vector<double> second_prefill, beyond;
  for (const std::string& picture : pictures) {
    const Timing first = Ask(*stub, picture);
    const Timing again = Ask(*stub, picture);
    cold.push_back(first.first_text);
    second.push_back(again.first_text);
    added_cold.push_back(Added(first));
    added_second.push_back(Added(again));
    // The first step of a second question is one Forward over what the prefix cache has not.
    second_prefill.push_back(again.end.receipt().stages().prefill_seconds());
    beyond.push_back(again.first_text - 1.2 * second_prefill.back());
    encode.push_back(first.end.receipt().stages().encode_seconds());
    decode.push_back(first.end.receipt().stages().image_decode_seconds());
    prefill.push_back(first.end.receipt().stages().prefill_seconds());
  }
  Print("time to first token, new picture", cold);
  Print("time to first token, second question", second);
  Print("its Forward over the uncached tokens", second_prefill);
  Print("time to first token beyond 1.2 x that", beyond);
  Print("image decode", decode);
  Print("encode", encode);
  Print("prefill", prefill);
  Print("added by gateway and hops, new picture", added_cold);
  Print("added by gateway and hops, second question", added_second);
  std::printf("%s\n", PeakMemory().c_str());
  return 0;
}

}  // namespace
}  // namespace tessera

int main() { return tessera::Main(); }
