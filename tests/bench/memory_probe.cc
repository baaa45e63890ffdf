#include "tests/bench/memory_probe.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <grpcpp/support/slice.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tessera/v1/gateway.pb.h"
#include "tests/bench/memory_hooks.h"

namespace tessera::bench {
namespace {

struct Module {
  std::string name;  // of the file, without its folder
  uintptr_t base = 0;
  bool own = false;  // this binary
};

Module ModuleOf(const void* address) {
  static const int here = 0;
  Dl_info self = {}, info = {};
  dladdr(&here, &self);
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string path = info.dli_fname;
  return {path.substr(path.rfind('/') + 1), reinterpret_cast<uintptr_t>(info.dli_fbase),
          info.dli_fbase == self.dli_fbase};
}

bool IsRuntime(const Module& module) {
  for (const char* name : {"libstdc++", "libc.so", "libm.so", "libgcc", "ld-linux", "libabsl"}) {
    if (absl::StartsWith(module.name, name)) return true;
  }
  return false;
}

const void* CallerOf(const void* return_address) {
  return static_cast<const char*>(return_address) - 1;
}

// Of the innermost frame that has one: its module.
Module OwnerModule(const Place& place) {
  for (int i = 0; i < place.frames; ++i) {
    Module module = ModuleOf(CallerOf(place.stack[i]));
    if (!module.name.empty() && !IsRuntime(module)) return module;
  }
  return {"?"};
}

Owner OwnerOf(const Module& module) {
  if (module.own) return Owner::kBinary;
  for (const char* name : {"libgrpc", "libgpr", "libupb"}) {
    if (absl::StartsWith(module.name, name)) return Owner::kGrpc;
  }
  return absl::StartsWith(module.name, "libprotobuf") ? Owner::kProtobuf : Owner::kOther;
}

void Add(Amount& amount, const Place& place) {
  amount.count += place.count.load();
  amount.bytes += place.bytes.load();
}

// Whether a call of memcpy came from within libstdc++.
bool RuntimeCopied() {
  for (const Place& place : TheHooks().places) {
    if (place.key == 0 || place.kind != Kind::kCopy) continue;
    if (absl::StartsWith(ModuleOf(CallerOf(place.stack[0])).name, "libstdc++")) return true;
  }
  return false;
}

void Fail(const char* what) {
  std::fprintf(stderr, "the hooks of memory_hooks.cc do not see %s: nothing can be counted\n",
               what);
  std::abort();
}

// Calls in files of ours, as addr2line has them, of each address, innermost first.
using Calls = std::map<uintptr_t, std::vector<std::string>>;

// "Class::Function (file:line)" from "0x1: a::Class::Function(int) at /b/services/c/d.cc:12";
// empty: not ours.
std::string OwnCall(absl::string_view line) {
  const size_t at = line.rfind(" at ");
  if (at == line.npos) return "";
  absl::string_view where = line.substr(at + 4);
  size_t folder = where.npos;
  for (const char* name : {"/services/", "/common/", "/tools/", "/kernels/"}) {
    folder = std::min(folder, where.rfind(name));
  }
  if (folder == where.npos) return "";
  where = where.substr(folder + 1);
  const std::string all = absl::StrReplaceAll(
      line.substr(0, at),
      {{"(inlined by) ", ""}, {"(anonymous namespace)::", ""}, {"[abi:cxx11]", ""}});
  absl::string_view name = all;
  name = name.substr(0, name.find('('));
  const size_t space = name.rfind(' ');
  if (space != name.npos) name = name.substr(space + 1);
  const size_t scope = name.rfind("::");
  const size_t outer = scope == name.npos ? scope : name.rfind("::", scope - 1);
  if (outer != name.npos) name = name.substr(outer + 2);
  return absl::StrCat(name, " (", where.substr(0, where.find(' ')), ")");
}

Calls OwnCalls(const std::vector<const Place*>& places) {
  std::string path(4096, '\0');
  const ssize_t size = readlink("/proc/self/exe", path.data(), path.size());
  path.resize(static_cast<size_t>(std::max<ssize_t>(size, 0)));
  std::string command = absl::StrCat("addr2line -Cfpia -e '", path, "'");
  std::set<uintptr_t> addresses;
  for (const Place* place : places) {
    for (int i = 0; i < place->frames; ++i) {
      const auto at = reinterpret_cast<uintptr_t>(CallerOf(place->stack[i]));
      const Module module = ModuleOf(CallerOf(place->stack[i]));
      if (module.own) addresses.insert(at - module.base);
    }
  }
  for (const uintptr_t address : addresses) absl::StrAppend(&command, " 0x", absl::Hex(address));
  Calls calls;
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return calls;
  std::string text;
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) text.append(buffer, n);
  pclose(pipe);
  uintptr_t at = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, "0x")) at = std::strtoull(std::string(line).c_str(), nullptr, 16);
    std::string call = OwnCall(line);
    std::vector<std::string>& own = calls[at];
    if (!call.empty() && std::find(own.begin(), own.end(), call) == own.end()) {
      own.push_back(std::move(call));
    }
  }
  return calls;
}

// The three innermost calls of ours; else what the library exports there.
std::string Describe(const Place& place, const Calls& calls) {
  std::vector<std::string> own;
  std::string library;
  for (int i = 0; i < place.frames && own.size() < 3; ++i) {
    const auto at = reinterpret_cast<uintptr_t>(CallerOf(place.stack[i]));
    const Module module = ModuleOf(CallerOf(place.stack[i]));
    const auto found = module.own ? calls.find(at - module.base) : calls.end();
    if (found != calls.end()) own.insert(own.end(), found->second.begin(), found->second.end());
    if (library.empty() && !module.own && !IsRuntime(module)) {
      library = absl::StrCat(module.name, "+0x", absl::Hex(at - module.base));
    }
  }
  if (own.empty()) return library.empty() ? "the binary, no file of ours" : library;
  std::string text = own[0];
  for (size_t i = 1; i < std::min<size_t>(own.size(), 3); ++i) {
    absl::StrAppend(&text, " < ", own[i]);
  }
  return text;
}

}  // namespace

Amount ByOwner::all() const {
  Amount sum;
  for (const Amount& amount : *this) {
    sum.count += amount.count;
    sum.bytes += amount.bytes;
  }
  return sum;
}

void OpenWindow(const WindowOptions& options) {
  Hooks& hooks = TheHooks();
  for (Place& place : hooks.places) {
    place.count = 0;
    place.bytes = 0;
    place.key = 0;
  }
  hooks.lost = 0;
  hooks.medium_peak = hooks.medium_start = hooks.medium_live.load();
  hooks.large_peak = hooks.large_start = hooks.large_live.load();
  hooks.least_copied = options.least_copied;
  hooks.least_allocated = options.least_allocated;
}

MemoryUse CloseWindow() {
  Hooks& hooks = TheHooks();
  hooks.least_copied = hooks.least_allocated = 0;
  if (hooks.lost > 0) Fail("all: there are too few places");
  MemoryUse use;
  use.medium_peak = static_cast<uint64_t>(hooks.medium_peak - hooks.medium_start);
  use.large_peak = static_cast<uint64_t>(hooks.large_peak - hooks.large_start);
  for (const Place& place : hooks.places) {
    if (place.key == 0) continue;
    const auto owner = static_cast<size_t>(OwnerOf(OwnerModule(place)));
    if (place.kind == Kind::kCopy) {
      Add(use.copied[owner], place);
    } else {
      Add(use.allocated[owner], place);
      if (place.kind == Kind::kLargeAllocation) Add(use.large[owner], place);
    }
  }
  return use;
}

void CheckHooks() {
  constexpr size_t kBytes = 1 << 20;
  void* once[2];
  backtrace(once, 2);  // it allocates when it is first called
  const std::string block(kBytes, 'x');
  OpenWindow({.least_copied = kLargeBytes, .least_allocated = kBytes});
  std::ostringstream stream;
  stream << block;
  MemoryUse use = CloseWindow();
  if (!RuntimeCopied() || stream.view().size() < kBytes) Fail("the copies of libstdc++");
  if (use.large[0].bytes < kBytes) Fail("operator new");

  OpenWindow({.least_copied = kBytes, .least_allocated = kBytes});
  const grpc::Slice slice(block);
  use = CloseWindow();
  const auto grpc = static_cast<size_t>(Owner::kGrpc);
  if (use.copied[grpc].bytes < kBytes || slice.size() < kBytes) Fail("the copies of gRPC");
  if (use.allocated[grpc].bytes < kBytes) Fail("the allocations of gRPC");

  v1::UploadImageRequest message;
  message.set_data(block);
  std::string wire;
  OpenWindow({.least_copied = kBytes});
  message.SerializeToString(&wire);
  use = CloseWindow();
  const auto protobuf = static_cast<size_t>(Owner::kProtobuf);
  if (use.copied[protobuf].bytes < kBytes || wire.size() < kBytes) Fail("the copies of protobuf");
}

void PrintPlaces(int most, uint64_t unit, uint64_t times) {
  constexpr const char* kKinds[] = {"copied", "small", "large"};
  std::vector<const Place*> places;
  for (const Place& place : TheHooks().places) {
    if (place.key != 0) places.push_back(&place);
  }
  const auto weight = [unit](const Amount& a) { return unit > 0 ? a.bytes : a.count; };
  const Calls calls = OwnCalls(places);
  std::map<std::pair<std::string, std::string>, Amount> sums;
  for (const Place* place : places) {
    const std::string head =
        absl::StrCat(kKinds[static_cast<int>(place->kind)], ", ", OwnerModule(*place).name);
    Add(sums[{head, Describe(*place, calls)}], *place);
  }
  std::vector<std::pair<std::pair<std::string, std::string>, Amount>> sorted(sums.begin(),
                                                                             sums.end());
  std::sort(sorted.begin(), sorted.end(),
            [&](const auto& a, const auto& b) { return weight(a.second) > weight(b.second); });
  for (int i = 0; i < most && i < static_cast<int>(sorted.size()); ++i) {
    const double share = static_cast<double>(weight(sorted[i].second)) /
                         static_cast<double>(unit > 0 ? unit : times);
    std::printf("  %6.2f  %-28s %s\n", share, sorted[i].first.first.c_str(),
                sorted[i].first.second.c_str());
  }
}

}  // namespace tessera::bench
