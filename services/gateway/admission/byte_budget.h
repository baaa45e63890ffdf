#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace tessera::gateway {

// Bytes, or what else there is a limit of, that clients make this process hold: those of all
// tenants together, and of these one tenant's share. Any thread.
class ByteBudget {
  struct State;

 public:
  struct Limits {
    size_t bytes = 0;            // of all tenants
    double tenant_share = 1;     // of these, that one tenant may hold; 1 where there is one only
    size_t least = 0;            // neither is less than this: the largest message of one client
    absl::Status full;           // what is told when all are held
    const char* unit = "bytes";  // for messages
  };
  explicit ByteBudget(Limits limits);

  // What one client has of it, given back when this goes, which may be after the budget. One thread
  // at a time.
  class Hold {
   public:
    Hold() = default;  // of no budget: grows without a limit
    Hold(Hold&& other) noexcept
        : state_(std::move(other.state_)),
          tenant_(std::move(other.tenant_)),
          bytes_(std::exchange(other.bytes_, 0)) {}
    Hold& operator=(Hold&& other) noexcept;
    ~Hold() { Reset(); }

    size_t bytes() const { return bytes_; }
    // To `bytes`; does nothing where it has as many. RESOURCE_EXHAUSTED with a retry, changing
    // nothing: QUOTA_EXCEEDED where the tenant would have more than its share; or Limits::full.
    absl::Status Grow(size_t bytes);
    // Gives all of it back.
    void Reset();

   private:
    friend class ByteBudget;
    Hold(std::shared_ptr<State> state, std::string tenant)
        : state_(std::move(state)), tenant_(std::move(tenant)) {}
    std::shared_ptr<State> state_;
    std::string tenant_;
    size_t bytes_ = 0;
  };
  // Of nothing yet.
  Hold For(std::string tenant) { return Hold(state_, std::move(tenant)); }

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace tessera::gateway
