#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tests/bench/block_sizes.h"

// What a process copies and allocates while a window is open, in all its libraries too: the binary
// that links this has its own memcpy, memmove, malloc and operator new (memory_hooks.cc), which the
// libraries then call. What the kernel copies, and loops over single bytes, are not seen as copies;
// their buffers are, as allocations. One window at a time, opened and closed by one thread.
namespace tessera::bench {

// Whose code asked: the innermost frame that is not of the C or C++ runtime or of Abseil. kBinary
// is our code, with what headers of gRPC, protobuf, Beast and JSON put into it, and with what a
// library hands to libstdc++ by a jump, which leaves no frame of its own.
enum class Owner { kBinary, kGrpc, kProtobuf, kOther };
constexpr size_t kOwners = 4;

struct Amount {
  uint64_t count = 0;
  uint64_t bytes = 0;
};

struct ByOwner : std::array<Amount, kOwners> {
  Amount all() const;
};

struct MemoryUse {
  ByOwner copied;            // memcpy and memmove of at least WindowOptions::least_copied
  ByOwner allocated;         // of at least WindowOptions::least_allocated
  ByOwner large;             // of these, those of kLargeBytes and more
  uint64_t medium_peak = 0;  // bytes of blocks of kMediumBytes and more, above those at the start
  uint64_t large_peak = 0;   // of kLargeBytes and more, above those at the start
};

// Each is told from its smallest block on; 0: not at all.
struct WindowOptions {
  size_t least_copied = 0;
  size_t least_allocated = 0;
};

// Ends the process, with a message, where calls of this binary, libstdc++, gRPC or protobuf do not
// come through. Once, before the first window.
void CheckHooks();
void OpenWindow(const WindowOptions& options);
MemoryUse CloseWindow();
// To stdout: the places that copied or allocated most since OpenWindow, by their calls of our own
// files, innermost first, in multiples of `unit` bytes (0: in blocks divided by `times`). Needs
// addr2line. After CloseWindow, before the next window.
void PrintPlaces(int most, uint64_t unit, uint64_t times);

}  // namespace tessera::bench
