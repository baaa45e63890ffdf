// `picture_bench [--places]`: how often a new picture is copied between the client's socket and the
// decoder, and what is allocated for it, in the three ways that it may come: in a request over
// gRPC, uploaded, as a data: URL over HTTP. The three services with the bundled model are in this
// process, the client is another one. Of a picture of 8 MiB there is told what it takes beyond one
// of 16 KiB; the two have the same pixels. --places: where in the code, too.
#include <grpcpp/client_context.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/rpc/channel.h"
#include "tessera/v1/gateway.grpc.pb.h"
#include "tests/bench/memory_probe.h"
#include "tests/support/child_process.h"
#include "tests/support/loopback.h"
#include "tools/local_server.h"

namespace tessera::bench {
namespace {

constexpr size_t kLarge = 8 << 20, kSmall = 16 << 10;
constexpr size_t kUploadChunk = 1 << 20;
constexpr int kRounds = 5;
// Smaller ones are too many to look at, and in the time of a picture mostly about something else.
constexpr size_t kLeastCopied = 1 << 10;
constexpr char kQuestion[] = "How many rows are there?";
constexpr const char* kWays[] = {"grpc", "upload", "http"};

void Put(std::string& out, uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

// A BMP of 64 x 64 pixels whose header is followed by noise up to `size`, the pixels being last.
// Each seed makes another picture.
std::string Picture(size_t size, uint64_t seed) {
  constexpr uint32_t kSide = 64, kPixelBytes = kSide * kSide * 3;
  std::string out = "BM";
  Put(out, static_cast<uint32_t>(size), 4);
  Put(out, 0, 4);
  Put(out, static_cast<uint32_t>(size) - kPixelBytes, 4);
  for (const uint32_t field : {40u, kSide, kSide}) Put(out, field, 4);
  Put(out, 1, 2);
  Put(out, 24, 2);
  for (int i = 0; i < 6; ++i) Put(out, 0, 4);
  for (uint64_t state = seed * 2 + 1; out.size() < size;) {
    state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth, MMIX
    out.push_back(static_cast<char>(state >> 56));
  }
  return out;
}

// The client.

void Ask(v1::GatewayService::Stub& stub, const v1::Image& image) {
  v1::GenerateRequest request;
  v1::Message& message = *request.add_messages();
  message.set_role("user");
  *message.add_parts()->mutable_image() = image;
  message.add_parts()->set_text(kQuestion);
  grpc::ClientContext context;
  v1::GenerateResponse response;
  const grpc::Status status = stub.Generate(&context, request, &response);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.error_message().c_str());
  CHECK(status.ok());
}

void AskOverGrpc(int port, std::string picture) {
  const auto stub = v1::GatewayService::NewStub(rpc::Connect(absl::StrCat("127.0.0.1:", port)));
  v1::Image image;
  image.mutable_inline_data()->set_data(std::move(picture));
  Ask(*stub, image);
}

void UploadAndAsk(int port, const std::string& picture) {
  const auto stub = v1::GatewayService::NewStub(rpc::Connect(absl::StrCat("127.0.0.1:", port)));
  grpc::ClientContext context;
  v1::UploadImageResponse response;
  const auto writer = stub->UploadImage(&context, &response);
  for (size_t at = 0; at < picture.size(); at += kUploadChunk) {
    v1::UploadImageRequest message;
    message.set_data(picture.substr(at, kUploadChunk));
    CHECK(writer->Write(message));
  }
  writer->WritesDone();
  CHECK(writer->Finish().ok());
  v1::Image image;
  image.set_handle(response.handle());
  Ask(*stub, image);
}

void AskOverHttp(int port, const std::string& picture) {
  const std::string body =
      absl::StrCat(R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":)",
                   R"({"url":"data:image/bmp;base64,)", absl::Base64Escape(picture),
                   R"("}},{"type":"text","text":")", kQuestion, R"("}]}]})");
  const testing::Fd fd = testing::ConnectTo(port);
  CHECK(fd.ok());
  CHECK(testing::SendAll(fd.get(),
                         absl::StrCat("POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\n"
                                      "Content-Type: application/json\r\nConnection: close\r\n"
                                      "Content-Length: ",
                                      body.size(), "\r\n\r\n", body)));
  std::string answer;
  char buffer[4096];
  for (ssize_t n; (n = recv(fd.get(), buffer, sizeof(buffer), 0)) > 0;) {
    answer.append(buffer, static_cast<size_t>(n));
  }
  if (!absl::StartsWith(answer, "HTTP/1.1 200")) std::fprintf(stderr, "%s\n", answer.c_str());
  CHECK(absl::StartsWith(answer, "HTTP/1.1 200"));
}

// `arguments`: way, port, bytes, seed.
int Client(char** arguments) {
  const std::string way = arguments[0];
  const int port = std::atoi(arguments[1]);
  std::string picture =
      Picture(std::strtoull(arguments[2], nullptr, 10), std::strtoull(arguments[3], nullptr, 10));
  if (way == "grpc") AskOverGrpc(port, std::move(picture));
  if (way == "upload") UploadAndAsk(port, picture);
  if (way == "http") AskOverHttp(port, picture);
  return 0;
}

// The server.

class Bench {
 public:
  Bench() {
    tools::LocalServerOptions options;
    options.model_dir = "models/shelf-vqa";
    options.grpc_address = options.http.address = "127.0.0.1:0";
    options.reflection = false;
    options.vision.quality_gate = false;  // noise is no good picture
    auto server = tools::LocalServer::Start(std::move(options));
    if (!server.ok()) std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    CHECK(server.ok());
    server_ = *std::move(server);
  }

  // One new picture, from before its client exists until that has its answer.
  MemoryUse One(const std::string& way, size_t bytes) {
    const int port = way == "http" ? server_->http_port() : server_->port();
    const std::vector<std::string> command = {
        "/proc/self/exe",     "client", way, absl::StrCat(port), absl::StrCat(bytes),
        absl::StrCat(++seed_)};
    OpenWindow({.least_copied = kLeastCopied, .least_allocated = kMediumBytes});
    testing::ChildProcess client(command, "/dev/stderr");
    CHECK_EQ(client.Wait(), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the calls end behind it
    return CloseWindow();
  }

 private:
  std::unique_ptr<tools::LocalServer> server_;
  uint64_t seed_ = 0;
};

// Multiples of the bytes by which the two pictures differ.
double Times(uint64_t large, uint64_t small) {
  return (static_cast<double>(large) - static_cast<double>(small)) / (kLarge - kSmall);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Measure(Bench& bench, const char* way, bool places) {
  std::vector<double> columns[9];
  for (int round = 0; round < kRounds + 1; ++round) {
    const MemoryUse small = bench.One(way, kSmall);
    const MemoryUse large = bench.One(way, kLarge);
    if (round == 0) continue;  // warms up
    columns[0].push_back(Times(large.copied.all().bytes, small.copied.all().bytes));
    for (size_t i = 0; i < kOwners; ++i) {
      columns[1 + i].push_back(Times(large.copied[i].bytes, small.copied[i].bytes));
    }
    columns[5].push_back(Times(large.large.all().bytes, small.large.all().bytes));
    columns[6].push_back(Times(large.allocated.all().bytes, small.allocated.all().bytes));
    columns[7].push_back(static_cast<double>(large.large_peak) / kLarge);
    columns[8].push_back(static_cast<double>(large.medium_peak) / kLarge);
  }
  std::printf("%-8s", way);
  for (const std::vector<double>& column : columns) std::printf(" %9.2f", Median(column));
  std::printf("\n");
  if (places) PrintPlaces(30, kLarge, 1);
  std::fflush(stdout);
}

int Main(bool places) {
  CheckHooks();
  Bench bench;
  std::printf("a new picture of %zu MiB, in multiples of its size\n", kLarge >> 20);
  std::printf("%-8s %-49s %-19s %-19s\n", "", "bytes copied, and by whose code",
              "allocated in blocks", "live at once, most");
  std::printf("%-8s", "way");
  for (const char* name : {"all", "binary", "gRPC", "protobuf", "others", ">= 64 KiB", ">= 4 KiB",
                           ">= 64 KiB", ">= 4 KiB"}) {
    std::printf(" %9s", name);
  }
  std::printf("\n");
  for (const char* way : kWays) Measure(bench, way, places);
  return 0;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  const absl::string_view word = argc > 1 ? argv[1] : "";
  if (word == "client" && argc == 6) return tessera::bench::Client(argv + 2);
  return tessera::bench::Main(word == "--places");
}
