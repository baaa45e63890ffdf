#include "tests/bench/memory_hooks.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <malloc.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <new>

#include "tests/bench/block_sizes.h"

extern "C" {
void* __libc_malloc(size_t bytes) noexcept;
void* __libc_calloc(size_t count, size_t bytes) noexcept;
void* __libc_realloc(void* memory, size_t bytes) noexcept;
void* __libc_memalign(size_t alignment, size_t bytes) noexcept;
void __libc_free(void* memory) noexcept;
void* __memcpy_chk(void* to, const void* from, size_t bytes, size_t room) noexcept;
void* __memmove_chk(void* to, const void* from, size_t bytes, size_t room) noexcept;
}

namespace tessera::bench {
namespace {

constinit Hooks hooks;
// The hooks of what the hooks do themselves.
constinit thread_local bool inside = false;

using Copy = void* (*)(void*, const void*, size_t);
constinit std::atomic<Copy> real_memcpy{nullptr}, real_memmove{nullptr};

// Before the libraries are bound. Volatile, or it would be compiled into a call of itself.
void* CopySlowly(void* to, const void* from, size_t bytes) {
  auto* const out = static_cast<volatile char*>(to);
  const auto* const in = static_cast<const volatile char*>(from);
  if (out <= in) {
    for (size_t i = 0; i < bytes; ++i) out[i] = in[i];
  } else {
    for (size_t i = bytes; i > 0; --i) out[i - 1] = in[i - 1];
  }
  return to;
}

[[gnu::constructor]] void FindReal() {
  real_memcpy = reinterpret_cast<Copy>(dlsym(RTLD_NEXT, "memcpy"));
  real_memmove = reinterpret_cast<Copy>(dlsym(RTLD_NEXT, "memmove"));
}

uint64_t KeyOf(Kind kind, void* const* stack, int frames) {
  uint64_t key = 14695981039346656037u + static_cast<uint64_t>(kind);
  for (int i = 0; i < frames; ++i) {
    key = (key ^ reinterpret_cast<uintptr_t>(stack[i])) * 1099511628211u;
    key ^= key >> 29;
  }
  return std::max<uint64_t>(key, 1);
}

void Note(Kind kind, size_t bytes, const void* caller) {
  if (inside) return;
  inside = true;
  std::array<void*, kFrames + 8> stack;
  const int frames = backtrace(stack.data(), static_cast<int>(stack.size()));
  // Without the frames of the hooks.
  int first =
      static_cast<int>(std::find(stack.begin(), stack.begin() + frames, caller) - stack.begin());
  if (first == frames) first = 0;
  const int kept = std::min(frames - first, kFrames);
  const uint64_t key = KeyOf(kind, stack.data() + first, kept);
  bool found = false;
  for (size_t probe = 0; probe < 64 && !found; ++probe) {
    Place& place = hooks.places[(key + probe) % kPlaces];
    uint64_t free = 0;
    if (place.key.compare_exchange_strong(free, key)) {
      place.kind = kind;
      place.frames = kept;
      for (int i = 0; i < kept; ++i) place.stack[i] = stack[first + i];
    } else if (free != key) {
      continue;
    }
    place.count.fetch_add(1, std::memory_order_relaxed);
    place.bytes.fetch_add(bytes, std::memory_order_relaxed);
    found = true;
  }
  if (!found) ++hooks.lost;
  inside = false;
}

void Grow(std::atomic<int64_t>& live, std::atomic<int64_t>& peak, int64_t bytes) {
  const int64_t now = live.fetch_add(bytes) + bytes;
  int64_t most = peak.load();
  while (now > most && !peak.compare_exchange_weak(most, now)) {
  }
}

void Live(void* memory, int sign) {
  const size_t bytes = malloc_usable_size(memory);
  if (bytes < kMediumBytes) return;
  const int64_t change = sign * static_cast<int64_t>(bytes);
  Grow(hooks.medium_live, hooks.medium_peak, change);
  if (bytes >= kLargeBytes) Grow(hooks.large_live, hooks.large_peak, change);
}

void* Born(void* memory, size_t bytes, const void* caller) {
  if (memory == nullptr) return nullptr;
  Live(memory, 1);
  const size_t least = hooks.least_allocated.load(std::memory_order_relaxed);
  if (least > 0 && bytes >= least) {
    Note(bytes >= kLargeBytes ? Kind::kLargeAllocation : Kind::kAllocation, bytes, caller);
  }
  return memory;
}

void Die(void* memory) {
  if (memory == nullptr) return;
  Live(memory, -1);
  __libc_free(memory);
}

void* CopyBlock(const std::atomic<Copy>& real, void* to, const void* from, size_t bytes,
                const void* caller) {
  const size_t least = hooks.least_copied.load(std::memory_order_relaxed);
  if (least > 0 && bytes >= least) Note(Kind::kCopy, bytes, caller);
  const Copy copy = real.load(std::memory_order_relaxed);
  return copy != nullptr ? copy(to, from, bytes) : CopySlowly(to, from, bytes);
}

void* New(size_t bytes, size_t alignment, const void* caller) {
  void* const memory = alignment == 0 ? __libc_malloc(std::max<size_t>(bytes, 1))
                                      : __libc_memalign(alignment, bytes);
  if (memory == nullptr) std::abort();
  return Born(memory, bytes, caller);
}

}  // namespace

Hooks& TheHooks() { return hooks; }

}  // namespace tessera::bench

using tessera::bench::Born;
using tessera::bench::CopyBlock;
using tessera::bench::Die;
using tessera::bench::New;

extern "C" {

void* memcpy(void* to, const void* from, size_t bytes) noexcept {
  return CopyBlock(tessera::bench::real_memcpy, to, from, bytes, __builtin_return_address(0));
}
void* memmove(void* to, const void* from, size_t bytes) noexcept {
  return CopyBlock(tessera::bench::real_memmove, to, from, bytes, __builtin_return_address(0));
}
void* __memcpy_chk(void* to, const void* from, size_t bytes, size_t room) noexcept {
  if (bytes > room) std::abort();
  return CopyBlock(tessera::bench::real_memcpy, to, from, bytes, __builtin_return_address(0));
}
void* __memmove_chk(void* to, const void* from, size_t bytes, size_t room) noexcept {
  if (bytes > room) std::abort();
  return CopyBlock(tessera::bench::real_memmove, to, from, bytes, __builtin_return_address(0));
}

void* malloc(size_t bytes) noexcept {
  return Born(__libc_malloc(bytes), bytes, __builtin_return_address(0));
}
void* calloc(size_t count, size_t bytes) noexcept {
  return Born(__libc_calloc(count, bytes), count * bytes, __builtin_return_address(0));
}
void* realloc(void* memory, size_t bytes) noexcept {
  if (memory != nullptr) tessera::bench::Live(memory, -1);
  return Born(__libc_realloc(memory, bytes), bytes, __builtin_return_address(0));
}
void* memalign(size_t alignment, size_t bytes) noexcept {
  return Born(__libc_memalign(alignment, bytes), bytes, __builtin_return_address(0));
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  return Born(__libc_memalign(alignment, bytes), bytes, __builtin_return_address(0));
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) noexcept {
  *memory = Born(__libc_memalign(alignment, bytes), bytes, __builtin_return_address(0));
  return *memory == nullptr ? ENOMEM : 0;
}
void free(void* memory) noexcept { Die(memory); }

}  // extern "C"

void* operator new(size_t bytes) { return New(bytes, 0, __builtin_return_address(0)); }
void* operator new[](size_t bytes) { return New(bytes, 0, __builtin_return_address(0)); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return New(bytes, 0, __builtin_return_address(0));
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return New(bytes, 0, __builtin_return_address(0));
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return New(bytes, static_cast<size_t>(alignment), __builtin_return_address(0));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return New(bytes, static_cast<size_t>(alignment), __builtin_return_address(0));
}
void operator delete(void* memory) noexcept { Die(memory); }
void operator delete[](void* memory) noexcept { Die(memory); }
void operator delete(void* memory, size_t) noexcept { Die(memory); }
void operator delete[](void* memory, size_t) noexcept { Die(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Die(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { Die(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { Die(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { Die(memory); }
