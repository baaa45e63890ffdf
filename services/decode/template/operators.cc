#include "services/decode/template/operators.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/decode/template/failure.h"
#include "services/decode/template/strings.h"

namespace tessera::decode::jinja {
namespace {

absl::string_view Symbol(Op op) {
  static constexpr absl::string_view kSymbols[] = {"+",  "-",  "*",      "/",   "//", "%",
                                                   "**", "==", "!=",     "<",   "<=", ">",
                                                   ">=", "in", "not in", "not", "-",  "+"};
  return kSymbols[static_cast<int>(op)];
}

absl::Status WrongTypes(Op op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->Is(Kind::kUndefined)) return Failure(absl::StrCat(value->label(), " is undefined"));
  }
  return Failure(absl::StrCat("cannot compute ", a.TypeName(), " ", Symbol(op), " ", b.TypeName()));
}

absl::Status TooLarge() { return Failure("an integer beyond 64 bits"); }

absl::StatusOr<int64_t> Power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return TooLarge();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return TooLarge();
  }
  return result;
}

absl::StatusOr<Value> Integers(Op op, int64_t a, int64_t b, bool untrusted) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Op::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Op::kSub:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Op::kMul:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Op::kPow: {
      if (b < 0) return Value::Float(std::pow(static_cast<double>(a), b), untrusted);
      ASSIGN_OR_RETURN(result, Power(a, b));
      break;
    }
    default: {  // kFloorDiv, kMod
      if (b == -1) {
        overflow = __builtin_sub_overflow(int64_t{0}, a, &result);
        if (op == Op::kMod) return Value::Int(0, untrusted);
        break;
      }
      const int64_t rest = a % b;
      const bool down = rest != 0 && (rest < 0) != (b < 0);
      result = op == Op::kMod ? rest + (down ? b : 0) : a / b - (down ? 1 : 0);
    }
  }
  if (overflow) return TooLarge();
  return Value::Int(result, untrusted);
}

double FloorMod(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0) return (rest < 0) != (b < 0) ? rest + b : rest;
  return std::copysign(0.0, b);
}

double FloorDiv(double a, double b) {
  const double quotient = (a - FloorMod(a, b)) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

absl::StatusOr<Value> Reals(Op op, double a, double b, bool untrusted) {
  switch (op) {
    case Op::kAdd:
      return Value::Float(a + b, untrusted);
    case Op::kSub:
      return Value::Float(a - b, untrusted);
    case Op::kMul:
      return Value::Float(a * b, untrusted);
    case Op::kDiv:
      return Value::Float(a / b, untrusted);
    case Op::kFloorDiv:
      return Value::Float(FloorDiv(a, b), untrusted);
    case Op::kMod:
      return Value::Float(FloorMod(a, b), untrusted);
    default: {
      const double power = std::pow(a, b);
      if (std::isnan(power) || std::isinf(power)) return Failure("** has no finite result");
      return Value::Float(power, untrusted);
    }
  }
}

absl::StatusOr<Value> Numbers(Op op, const Value& a, const Value& b) {
  const bool untrusted = a.untrusted() || b.untrusted();
  const bool divides = op == Op::kDiv || op == Op::kFloorDiv || op == Op::kMod;
  if (divides && b.real() == 0) return Failure("division by zero");
  if (op != Op::kDiv && a.IsIntegral() && b.IsIntegral()) {
    return Integers(op, a.integer(), b.integer(), untrusted);
  }
  return Reals(op, a.real(), b.real(), untrusted);
}

absl::StatusOr<Value> Plus(const Context& context, const Value& a, const Value& b) {
  if (a.Is(Kind::kString) && b.Is(Kind::kString)) {
    RETURN_IF_ERROR(context.budget.Bytes(0, a.text().size() + b.text().size()));
    Text text = a.text();
    text.Append(b.text());
    return context.String(std::move(text));
  }
  const bool lists = a.Is(Kind::kSequence) && b.Is(Kind::kSequence) && a.flavor() == b.flavor() &&
                     (a.flavor() == Flavor::kList || a.flavor() == Flavor::kTuple);
  if (!lists) return WrongTypes(Op::kAdd, a, b);
  Items items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  ASSIGN_OR_RETURN(Value sum, context.Sequence(a.flavor(), std::move(items)));
  return a.untrusted_shape() || b.untrusted_shape() ? sum.WithUntrustedShape() : sum;
}

}  // namespace

absl::StatusOr<Value> Repeat(const Context& context, const Value& value, int64_t times) {
  times = std::max<int64_t>(times, 0);
  const size_t size = value.Is(Kind::kString) ? value.text().size() : value.items().size();
  const size_t most = context.budget.limits().max_output_bytes;
  if (size > 0 && static_cast<uint64_t>(times) > most / size) return context.budget.Bytes(most + 1);
  if (size == 0) times = 0;
  if (value.Is(Kind::kString)) {
    Text text;
    text.Reserve(size * static_cast<size_t>(times));
    for (int64_t i = 0; i < times; ++i) text.Append(value.text());
    return context.String(std::move(text));
  }
  RETURN_IF_ERROR(context.budget.Bytes(size * static_cast<size_t>(times) * sizeof(Value)));
  Items items;
  for (int64_t i = 0; i < times; ++i) {
    items.insert(items.end(), value.items().begin(), value.items().end());
  }
  return context.Sequence(value.flavor(), std::move(items));
}

absl::StatusOr<Value> Arithmetic(const Context& context, Op op, const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) return Numbers(op, a, b);
  if (op == Op::kAdd) return Plus(context, a, b);
  if (op == Op::kMod && a.Is(Kind::kString)) {
    const bool tuple = b.Is(Kind::kSequence) && b.flavor() == Flavor::kTuple;
    return FormatPercent(context, a.text(), tuple ? b.items() : Items{b});
  }
  const auto repeats = [](const Value& value) {
    return value.Is(Kind::kString) ||
           (value.Is(Kind::kSequence) &&
            (value.flavor() == Flavor::kList || value.flavor() == Flavor::kTuple));
  };
  if (op == Op::kMul && repeats(a) && b.IsIntegral()) return Repeat(context, a, b.integer());
  if (op == Op::kMul && repeats(b) && a.IsIntegral()) return Repeat(context, b, a.integer());
  return WrongTypes(op, a, b);
}

absl::StatusOr<Value> Negate(const Value& value) {
  if (value.Is(Kind::kFloat)) return Value::Float(-value.real(), value.untrusted());
  if (!value.IsIntegral()) return Failure(absl::StrCat("cannot negate ", value.TypeName()));
  return Integers(Op::kSub, 0, value.integer(), value.untrusted());
}

absl::StatusOr<bool> Contains(const Context& context, const Value& container, const Value& value) {
  RETURN_IF_ERROR(context.budget.Steps(container.weight()));
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kString:
      if (!value.Is(Kind::kString)) return WrongTypes(Op::kIn, value, container);
      return FindPart(container.text().view(), value.text().view(), 0) != absl::string_view::npos;
    case Kind::kDict:
      if (!IsHashable(value)) return Failure("a list or dict cannot be a key");
      return container.Find(value) != nullptr;
    case Kind::kSequence:
      if (container.flavor() == Flavor::kGenerator) break;
      for (const Value& item : container.items()) {
        if (Equals(item, value)) return true;
      }
      return false;
    default:
      break;
  }
  return WrongTypes(Op::kIn, value, container);
}

absl::StatusOr<bool> CompareValues(const Context& context, Op op, const Value& a, const Value& b) {
  if (op == Op::kIn || op == Op::kNotIn) {
    ASSIGN_OR_RETURN(const bool in, Contains(context, b, a));
    return in == (op == Op::kIn);
  }
  RETURN_IF_ERROR(context.budget.Steps(std::min(a.weight(), b.weight())));
  if (op == Op::kEq) return Equals(a, b);
  if (op == Op::kNe) return !Equals(a, b);
  const bool swap = op == Op::kGt || op == Op::kGe;
  ASSIGN_OR_RETURN(const bool less, swap ? Less(b, a) : Less(a, b));
  return less || ((op == Op::kLe || op == Op::kGe) && Equals(a, b));
}

}  // namespace tessera::decode::jinja
