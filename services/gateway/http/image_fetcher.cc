#include "services/gateway/http/image_fetcher.h"

#include <utility>

// Beast and Asio 1.74 use std::exchange without including it: <utility> stands before them.
#include <boost/asio/connect.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <exception>
#include <optional>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "services/gateway/admission/byte_budget.h"
#include "services/gateway/http/image_url.h"

namespace tessera::gateway::http {
namespace {

namespace asio = boost::asio;
namespace beast_http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr uint32_t kMaxHeaderBytes = 16 << 10;

absl::Status NotFetched(absl::string_view reason, absl::string_view message) {
  return base::Error(absl::StatusCode::kInvalidArgument, reason, message);
}

bool IsPublic(const asio::ip::address& address) {
  return address.is_v4() ? IsPublicV4(address.to_v4().to_uint())
                         : IsPublicV6(address.to_v6().to_bytes());
}

// One fetch. The thread of `io` only, but for what it looks up. Lives as long as an operation of it
// is under way.
class Fetching : public std::enable_shared_from_this<Fetching> {
 public:
  // Has `place` until it has ended and its name is no longer being looked up.
  Fetching(const FetchOptions& options, ImageUrl url, asio::io_context& io, asio::ssl::context& tls,
           ByteBudget::Hold place)
      : options_(options),
        url_(std::move(url)),
        io_(io),
        place_(std::move(place)),
        timer_(io),
        stream_(io, tls) {}

  void Start(asio::thread_pool& names, ImageFetcher::Done done) {
    done_ = std::move(done);
    timer_.expires_after(absl::ToChronoMilliseconds(options_.timeout));
    timer_.async_wait([self = shared_from_this()](error_code error) {
      if (error) return;
      self->End(NotFetched("IMAGE_URL_TIMEOUT",
                           absl::StrCat("the picture was not fetched within ",
                                        absl::FormatDuration(self->options_.timeout))));
    });
    // The system's look-up blocks, for how long it likes: the timer does not wait for it.
    asio::post(names, [self = shared_from_this()] {
      if (self->options_.before_look_up) self->options_.before_look_up(self->url_.host);
      error_code error;
      asio::io_context unused;
      const auto found = tcp::resolver(unused).resolve(
          self->url_.host, absl::StrCat(self->url_.port), tcp::resolver::numeric_service, error);
      std::vector<tcp::endpoint> endpoints;
      for (const auto& entry : found) endpoints.push_back(entry.endpoint());
      asio::post(self->io_, [self, error, endpoints = std::move(endpoints)] {
        self->OnResolved(error, endpoints);
      });
    });
  }

  void End(absl::StatusOr<std::string> result) {
    if (!done_) return;
    timer_.cancel();
    error_code ignored;
    stream_.next_layer().close(ignored);
    const ImageFetcher::Done done = std::exchange(done_, nullptr);
    if (!looking_up_) place_.Reset();
    done(std::move(result));
  }

 private:
  bool MayUse(const tcp::endpoint& endpoint) const {
    if (IsPublic(endpoint.address())) return true;
    return options_.loopback_port != 0 && endpoint.port() == options_.loopback_port &&
           endpoint.address().is_loopback();
  }

  void Unreachable(absl::string_view what, const error_code& error) {
    End(NotFetched("IMAGE_URL_UNREACHABLE", absl::StrCat(what, ": ", error.message())));
  }

  void OnResolved(const error_code& error, const std::vector<tcp::endpoint>& endpoints) {
    looking_up_ = false;
    if (!done_) return place_.Reset();
    if (error || endpoints.empty()) return Unreachable("the URL's host has no address", error);
    // One that is not public makes all suspect.
    for (const tcp::endpoint& endpoint : endpoints) {
      if (MayUse(endpoint)) continue;
      return End(
          NotFetched("IMAGE_URL_ADDRESS", "the URL's host has an address that is not public"));
    }
    asio::async_connect(stream_.next_layer(), endpoints,
                        [self = shared_from_this()](error_code failed, const tcp::endpoint&) {
                          self->OnConnected(failed);
                        });
  }

  void OnConnected(const error_code& error) {
    if (!done_) return;
    if (error) return Unreachable("no connection to the URL's host", error);
    if (!url_.tls) return Exchange(stream_.next_layer());
    error_code failed;
    stream_.set_verify_mode(asio::ssl::verify_peer, failed);
    if (!failed) stream_.set_verify_callback(asio::ssl::host_name_verification(url_.host), failed);
    asio::ip::make_address(url_.host, failed);
    // A name, not an address, is told to the server (RFC 6066).
    if (failed) SSL_set_tlsext_host_name(stream_.native_handle(), url_.host.c_str());
    stream_.async_handshake(asio::ssl::stream_base::client,
                            [self = shared_from_this()](error_code refused) {
                              if (!self->done_) return;
                              if (refused) return self->Unreachable("no TLS", refused);
                              self->Exchange(self->stream_);
                            });
  }

  template <typename Stream>
  void Exchange(Stream& stream) {
    request_ = {beast_http::verb::get, url_.target, 11};
    request_.set(beast_http::field::host, url_.authority);
    request_.set(beast_http::field::user_agent, "tessera");
    request_.set(beast_http::field::accept, "image/*");
    request_.set(beast_http::field::connection, "close");
    parser_.header_limit(kMaxHeaderBytes);
    parser_.body_limit(options_.max_bytes);
    beast_http::async_write(stream, request_,
                            [self = shared_from_this(), &stream](error_code error, size_t) {
                              if (!self->done_) return;
                              if (error)
                                return self->Unreachable("the URL's host took no request", error);
                              self->ReadHeader(stream);
                            });
  }

  template <typename Stream>
  void ReadHeader(Stream& stream) {
    beast_http::async_read_header(
        stream, buffer_, parser_, [self = shared_from_this(), &stream](error_code error, size_t) {
          if (!self->done_) return;
          if (error) return self->OnBadAnswer(error);
          const int status = self->parser_.get().result_int();
          if (status != 200) {
            const bool moved = status >= 300 && status < 400;
            return self->End(NotFetched("IMAGE_URL_STATUS",
                                        absl::StrCat("the URL's host answers ", status,
                                                     moved ? "; redirects are not followed" : "")));
          }
          self->ReadBody(stream);
        });
  }

  template <typename Stream>
  void ReadBody(Stream& stream) {
    beast_http::async_read(stream, buffer_, parser_,
                           [self = shared_from_this()](error_code error, size_t) {
                             if (!self->done_) return;
                             if (error) return self->OnBadAnswer(error);
                             self->End(std::move(self->parser_.get().body()));
                           });
  }

  void OnBadAnswer(const error_code& error) {
    if (error != beast_http::error::body_limit) return Unreachable("no picture came", error);
    End(base::WithFact(NotFetched("IMAGE_TOO_LARGE", absl::StrCat("the picture has more than ",
                                                                  options_.max_bytes, " bytes")),
                       "limit", "bytes"));
  }

  const FetchOptions& options_;
  const ImageUrl url_;
  asio::io_context& io_;
  ByteBudget::Hold place_;
  asio::steady_timer timer_;
  asio::ssl::stream<tcp::socket> stream_;
  ImageFetcher::Done done_;  // null once it was called
  bool looking_up_ = true;   // its thread of names has not answered yet
  beast_http::request<beast_http::empty_body> request_;
  boost::beast::flat_buffer buffer_{2 * kMaxHeaderBytes};
  beast_http::response_parser<beast_http::string_body> parser_;
};

ByteBudget::Limits PlacesOf(const FetchOptions& options) {
  return {.bytes = static_cast<size_t>(options.max_fetches),
          .tenant_share = options.tenant_share,
          .least = 1,
          .full = base::WithRetry(
              base::Error(absl::StatusCode::kResourceExhausted, "FETCHES_FULL",
                          "as many pictures as may be are being fetched; try again"),
              absl::Seconds(1)),
          .unit = "fetches of pictures"};
}

}  // namespace

absl::Status CheckImageHost(std::string& host) {
  host = absl::AsciiStrToLower(absl::StripAsciiWhitespace(host));
  const absl::StatusOr<ImageUrl> url = ParseImageUrl(absl::StrCat("http://", host));
  if (url.ok() && url->target == "/" && url->authority == host) return absl::OkStatus();
  return base::BadField(
      "image_url_hosts", "BAD_OPTION",
      absl::StrCat("--image_url_hosts: \"", host, "\" is neither host nor host:port"));
}

// In the order of birth: what is under way dies with `io`, and uses what is above it.
struct ImageFetcher::Engine {
  FetchOptions options;
  asio::ssl::context tls{asio::ssl::context::tls_client};
  std::optional<ByteBudget> places;
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard{io.get_executor()};
  std::optional<asio::thread_pool> names;
  std::thread thread;
  std::vector<std::weak_ptr<Fetching>> under_way;  // of the thread
};

absl::StatusOr<std::unique_ptr<ImageFetcher>> ImageFetcher::Create(FetchOptions options) {
  for (std::string& host : options.hosts) RETURN_IF_ERROR(CheckImageHost(host));
  try {  // Asio throws where the machine has no more threads
    auto engine = std::make_unique<Engine>();
    error_code error;
    if (options.ca_file.empty()) {
      engine->tls.set_default_verify_paths(error);
    } else {
      engine->tls.load_verify_file(options.ca_file, error);
    }
    if (error) {
      return base::BadField("ca_file", "BAD_OPTION",
                            absl::StrCat("certificates to trust: ", error.message()));
    }
    engine->options = std::move(options);
    engine->places.emplace(PlacesOf(engine->options));
    engine->names.emplace(static_cast<size_t>(engine->options.max_fetches));
    engine->thread = std::thread([io = &engine->io] { io->run(); });
    return std::unique_ptr<ImageFetcher>(new ImageFetcher(std::move(engine)));
  } catch (const std::exception& e) {
    return absl::ResourceExhaustedError(absl::StrCat("fetching pictures: ", e.what()));
  }
}

ImageFetcher::ImageFetcher(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}

ImageFetcher::~ImageFetcher() {
  asio::post(engine_->io, [engine = engine_.get()] {
    for (const auto& weak : engine->under_way) {
      if (const auto fetching = weak.lock()) fetching->End(absl::CancelledError("shutting down"));
    }
  });
  engine_->names->join();
  engine_->guard.reset();
  engine_->thread.join();
}

void ImageFetcher::Fetch(const std::string& url, const std::string& tenant, Done done) {
  absl::StatusOr<ImageUrl> parsed = ParseImageUrl(url);
  if (!parsed.ok()) return done(parsed.status());
  if (!IsAllowed(*parsed, engine_->options.hosts)) {
    return done(NotFetched("IMAGE_URL_HOST", "pictures are not fetched from the URL's host"));
  }
  ByteBudget::Hold place = engine_->places->For(tenant);
  if (const absl::Status status = place.Grow(1); !status.ok()) return done(status);
  asio::post(engine_->io, [engine = engine_.get(), url = *std::move(parsed),
                           place = std::move(place), done = std::move(done)]() mutable {
    auto fetching = std::make_shared<Fetching>(engine->options, std::move(url), engine->io,
                                               engine->tls, std::move(place));
    auto& all = engine->under_way;
    std::erase_if(all, [](const auto& weak) { return weak.expired(); });
    all.push_back(fetching);
    fetching->Start(*engine->names, std::move(done));
  });
}

}  // namespace tessera::gateway::http
