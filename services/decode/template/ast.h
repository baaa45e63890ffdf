#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/decode/template/value.h"

// What the parser makes and the interpreter walks. Immutable, shared by all renderings.
namespace tessera::decode::jinja {

enum class Op {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kIn,
  kNotIn,
  kNot,
  kNeg,
  kPos,
};

enum class ExprKind {
  kConst,    // value
  kName,     // name
  kList,     // args
  kTuple,    // args
  kDict,     // args: key, value, key, value
  kAttr,     // args[0] . name
  kItem,     // args[0] [ args[1] ]
  kSlice,    // args[0] [ args[1] : args[2] : args[3] ], each of the last three may be null
  kCall,     // args[0] ( args[1...], keywords )
  kFilter,   // args[0] | name ( args[1...], keywords ); args[0] is null in a filter block
  kTest,     // args[0] is name ( args[1...], keywords )
  kUnary,    // ops[0] args[0]
  kBinary,   // args[0] ops[0] args[1]
  kCompare,  // args[0] ops[0] args[1] ops[1] args[2] ...
  kAnd,      // all of args
  kOr,
  kConcat,  // args[0] ~ args[1] ~ ...
  kCond,    // args[0] if args[1] else args[2]; args[2] may be null
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  ExprKind kind;
  int line;
  int depth = 1;  // levels below and this one; bounded while parsing
  std::string name;
  Value value;
  std::vector<Op> ops;
  std::vector<ExprPtr> args;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
};

struct Stmt;
using Block = std::vector<std::unique_ptr<Stmt>>;

// Where a value goes: a name, a namespace's field (`name`.`field`), or several of these.
struct Target {
  std::string name;
  std::string field;
  std::vector<Target> parts;
};

struct Param {
  std::string name;
  ExprPtr fallback;  // may be null
};

struct Macro {
  std::string name;
  std::vector<Param> params;
  bool uses_caller = false;
  Block body;
};

enum class StmtKind {
  kText,         // text
  kOutput,       // expr
  kIf,           // branches in order, then body
  kFor,          // targets[0] in expr, filtered by condition: body; otherwise
  kSet,          // targets[0] = expr
  kSetBlock,     // targets[0] = body, passed through expr (a filter chain) when not null
  kWith,         // targets[i] = values[i]: body
  kMacro,        // macro
  kCallBlock,    // expr (a call) with macro as its caller
  kFilterBlock,  // expr (a filter chain) over body
  kGroup,        // body, with names of its own
  kBreak,
  kContinue,
};

struct Branch {
  ExprPtr condition;
  Block body;
};

struct Stmt {
  StmtKind kind;
  int line;
  std::string text;
  ExprPtr expr;
  ExprPtr condition;
  std::vector<Target> targets;
  std::vector<ExprPtr> values;
  std::vector<Branch> branches;
  Block body;
  Block otherwise;
  std::unique_ptr<Macro> macro;
};

}  // namespace tessera::decode::jinja
