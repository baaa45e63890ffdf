#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tessera::gateway::http {

struct FetchOptions {
  // Whose pictures are fetched: "host", at the scheme's own port, or "host:port". Exact names in
  // lower case.
  std::vector<std::string> hosts;
  absl::Duration timeout = absl::Seconds(5);  // of all of one fetch
  size_t max_bytes = size_t{20} << 20;        // of one picture
  // Under way, with look-ups of names that nobody waits for any more; more are refused.
  int max_fetches = 8;
  double tenant_share = 1;  // of these that one tenant may have, at least one
  std::string ca_file;      // PEM; empty: the system's
  // For tests: addresses of the loopback network are taken at this port. 0: nowhere.
  int loopback_port = 0;
  // For tests: called before a host's name is looked up, on the thread that then does.
  std::function<void(const std::string& host)> before_look_up = {};
};

// Brings an entry of FetchOptions::hosts into its lower case. INVALID_ARGUMENT: BAD_OPTION,
// image_url_hosts, where it is none.
absl::Status CheckImageHost(std::string& host);

// Fetches pictures from http and https URLs of a few known hosts: no redirects, no address that is
// not public, checked after the name is resolved, and connected to as it was checked. Any thread.
class ImageFetcher {
 public:
  // INVALID_ARGUMENT: BAD_OPTION where a host is none, or ca_file cannot be read.
  static absl::StatusOr<std::unique_ptr<ImageFetcher>> Create(FetchOptions options);
  // Ends what is under way; waits for names that are being looked up.
  ~ImageFetcher();
  ImageFetcher(const ImageFetcher&) = delete;
  ImageFetcher& operator=(const ImageFetcher&) = delete;

  // The body of the answer 200. INVALID_ARGUMENT with a reason:
  //   IMAGE_URL              not such a URL
  //   IMAGE_URL_HOST         a host that is not among options.hosts
  //   IMAGE_URL_ADDRESS      the host has an address that is not public
  //   IMAGE_URL_UNREACHABLE  no such name, no connection, a certificate that does not hold, no HTTP
  //   IMAGE_URL_STATUS       an answer other than 200, redirects too
  //   IMAGE_URL_TIMEOUT      not done in time
  //   IMAGE_TOO_LARGE        more than max_bytes
  // RESOURCE_EXHAUSTED with RetryInfo: FETCHES_FULL, or QUOTA_EXCEEDED where `tenant` has its
  // share. `done` is called exactly once: here where no socket was opened, else on a thread of the
  // fetcher.
  using Done = std::function<void(absl::StatusOr<std::string>)>;
  void Fetch(const std::string& url, const std::string& tenant, Done done);

 private:
  struct Engine;
  explicit ImageFetcher(std::unique_ptr<Engine> engine);
  std::unique_ptr<Engine> engine_;
};

}  // namespace tessera::gateway::http
