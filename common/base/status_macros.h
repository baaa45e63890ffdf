#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the enclosing function when `expr` (an absl::Status) is an error.
#define RETURN_IF_ERROR(expr)                                       \
  do {                                                              \
    if (absl::Status status_macro_ = (expr); !status_macro_.ok()) { \
      return status_macro_;                                         \
    }                                                               \
  } while (false)

#define TESSERA_CONCAT_INNER_(a, b) a##b
#define TESSERA_CONCAT_(a, b) TESSERA_CONCAT_INNER_(a, b)

// ASSIGN_OR_RETURN(auto x, F()): the value of a StatusOr, or return its error.
#define ASSIGN_OR_RETURN(lhs, expr) \
  TESSERA_ASSIGN_OR_RETURN_(TESSERA_CONCAT_(status_or_, __LINE__), lhs, expr)
#define TESSERA_ASSIGN_OR_RETURN_(tmp, lhs, expr) \
  auto tmp = (expr);                              \
  if (!tmp.ok()) return std::move(tmp).status();  \
  lhs = *std::move(tmp)
