#pragma once

#include <sstream>
#include <string>

// CHECK is for what only we can get wrong (an invariant, a REQUIRES): it prints and aborts.
// What the world can cause is an absl::Status.

namespace tessera::base {

// Prints "CHECK failed: <what> at file:line" to stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const std::string& what);

template <typename A, typename B>
std::string CheckOpText(const char* text, const A& a, const B& b) {
  std::ostringstream out;
  out << text << " (" << a << " vs " << b << ")";
  return out.str();
}

}  // namespace tessera::base

#define CHECK(cond)                                                       \
  do {                                                                    \
    if (!(cond)) ::tessera::base::CheckFailed(__FILE__, __LINE__, #cond); \
  } while (false)
#define CHECK_OP_(a, op, b)                                                     \
  do {                                                                          \
    const auto& check_a_ = (a);                                                 \
    const auto& check_b_ = (b);                                                 \
    if (!(check_a_ op check_b_)) {                                              \
      ::tessera::base::CheckFailed(                                             \
          __FILE__, __LINE__,                                                   \
          ::tessera::base::CheckOpText(#a " " #op " " #b, check_a_, check_b_)); \
    }                                                                           \
  } while (false)
#define CHECK_EQ(a, b) CHECK_OP_(a, ==, b)
#define CHECK_NE(a, b) CHECK_OP_(a, !=, b)
#define CHECK_LE(a, b) CHECK_OP_(a, <=, b)
#define CHECK_LT(a, b) CHECK_OP_(a, <, b)
#define CHECK_GE(a, b) CHECK_OP_(a, >=, b)
#define CHECK_GT(a, b) CHECK_OP_(a, >, b)
