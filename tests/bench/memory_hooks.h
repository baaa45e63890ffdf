#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

// For memory_hooks.cc and memory_probe.cc only: what the hooks write while a window is open.
namespace tessera::bench {

constexpr int kFrames = 32;
constexpr size_t kPlaces = 1 << 14;

enum class Kind : uint8_t { kCopy, kAllocation, kLargeAllocation };

// All calls of one kind by one way through the code.
struct Place {
  std::atomic<uint64_t> key{0};  // 0: free
  Kind kind{};
  int frames = 0;
  std::array<void*, kFrames> stack{};  // innermost first; the caller of the hook
  std::atomic<uint64_t> count{0}, bytes{0};
};

struct Hooks {
  std::atomic<size_t> least_copied{0}, least_allocated{0};  // 0: none is noted
  std::atomic<int64_t> medium_live{0}, medium_peak{0};  // bytes of blocks, since the process began
  std::atomic<int64_t> large_live{0}, large_peak{0};
  int64_t medium_start = 0, large_start = 0;  // live when the window was opened
  std::atomic<uint64_t> lost{0};              // calls for which there was no place
  std::array<Place, kPlaces> places{};
};

// There is one set of hooks in a process, as there is one memcpy.
Hooks& TheHooks();

}  // namespace tessera::bench
