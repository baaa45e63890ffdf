#include "common/store/redis/redis_connection.h"

#include <hiredis/hiredis.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tessera::store {
namespace {

constexpr absl::string_view kEnd = "\r\n";
constexpr size_t kMaxErrorText = 200;
// Among the names of records, which an access control list allows; nothing lies there.
constexpr absl::string_view kProbe = "tessera:emb:v1:probe";

absl::Status NoAnswer(absl::string_view why) {
  return base::Error(absl::StatusCode::kDataLoss, "REDIS_PROTOCOL",
                     absl::StrCat("not what Redis answers: ", why));
}

absl::Status Refused(absl::string_view command, absl::string_view error) {
  return base::Error(absl::StatusCode::kUnavailable, "REDIS_REFUSED",
                     absl::StrCat(command, ": ", error));
}

std::string Format(absl::Span<const absl::string_view> words) {
  std::vector<const char*> texts;
  std::vector<size_t> sizes;
  for (const absl::string_view word : words) {
    texts.push_back(word.data());
    sizes.push_back(word.size());
  }
  char* formatted = nullptr;
  const int size = redisFormatCommandArgv(&formatted, static_cast<int>(words.size()), texts.data(),
                                          sizes.data());
  CHECK(size > 0);
  const std::unique_ptr<char, void (*)(char*)> owner(
      formatted, [](char* command) { redisFreeCommand(command); });
  return std::string(formatted, static_cast<size_t>(size));
}

// The length in "$123\r\n"; nullopt where it is none, or "$-1\r\n".
std::optional<size_t> LengthOf(absl::string_view line) {
  const absl::string_view digits = line.substr(1, line.size() - 1 - kEnd.size());
  size_t length = 0;
  if (digits.empty() || !std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(digits, &length)) {
    return std::nullopt;
  }
  return length;
}

}  // namespace

bool RedisReply::MeansDown() const {
  constexpr absl::string_view kWords[] = {"LOADING",    "NOAUTH", "WRONGPASS",
                                          "MASTERDOWN", "BUSY",   "CLUSTERDOWN"};
  return kind == Kind::kError &&
         std::any_of(std::begin(kWords), std::end(kWords),
                     [this](absl::string_view word) { return absl::StartsWith(text, word); });
}

bool RedisReply::MeansMoved() const {
  return kind == Kind::kError && absl::StartsWith(text, "READONLY");
}

void RedisConnection::ReaderFree::operator()(redisReader* reader) const { redisReaderFree(reader); }

RedisConnection::RedisConnection(const RedisOptions& options, std::unique_ptr<RedisSocket> socket)
    : options_(options), socket_(std::move(socket)), reader_(redisReaderCreate()) {
  CHECK(reader_ != nullptr);
}

RedisConnection::~RedisConnection() = default;

absl::StatusOr<std::unique_ptr<RedisConnection>> RedisConnection::Open(
    const RedisOptions& options, const RedisTls* tls, absl::Span<const SocketAddress> addresses) {
  const absl::Time deadline = base::RealClock().Now() + options.connect_timeout;
  ASSIGN_OR_RETURN(auto socket, RedisSocket::Connect(addresses, tls, deadline));
  std::unique_ptr<RedisConnection> made(new RedisConnection(options, std::move(socket)));
  RETURN_IF_ERROR(made->LogIn(deadline));
  return made;
}

// All commands go out at once: one round trip, however many there are.
absl::Status RedisConnection::LogIn(absl::Time deadline) {
  const RedisAddress& address = options_.address;
  std::vector<absl::string_view> names;
  std::string commands;
  const auto add = [&](std::vector<absl::string_view> words) {
    names.push_back(words[0]);
    commands += Format(words);
  };
  if (!address.user.empty()) {
    add({"AUTH", address.user, address.password});
  } else if (!address.password.empty()) {
    add({"AUTH", address.password});
  }
  const std::string database = absl::StrCat(address.database);
  if (address.database != 0) add({"SELECT", database});
  add({"PING"});
  add({"GET", kProbe});
  RETURN_IF_ERROR(socket_->Write(commands, deadline));
  for (const absl::string_view name : names) {
    ASSIGN_OR_RETURN(const RedisReply reply, Reply(deadline));
    const bool nil = name == "GET" && reply.kind == RedisReply::Kind::kNil;
    if (nil || reply.kind == RedisReply::Kind::kStatus) continue;
    if (reply.kind != RedisReply::Kind::kError) return NoAnswer("the answer to a log-in");
    // Who may not ask for that has been answered all the same.
    const bool asked = name == "PING" || (name == "GET" && !reply.MeansDown());
    if (asked && (name == "GET" || absl::StartsWith(reply.text, "NOPERM"))) continue;
    // Some servers repeat what they do not understand: of AUTH that would be the password.
    return Refused(name, name == "AUTH" ? reply.text.substr(0, reply.text.find(' ')) : reply.text);
  }
  return buffered() == 0 ? absl::OkStatus() : NoAnswer("more than the answer");
}

bool RedisConnection::IsQuiet() { return buffered() == 0 && socket_->IsQuiet(); }

absl::Time RedisConnection::DeadlineFor(absl::Time begin, size_t bytes) const {
  return begin + options_.operation_timeout +
         absl::Seconds(static_cast<double>(bytes) /
                       static_cast<double>(options_.min_bytes_per_second));
}

absl::StatusOr<RedisReply> RedisConnection::Get(absl::string_view key, size_t most_bytes) {
  const absl::Time begin = base::RealClock().Now();
  const absl::Time deadline = DeadlineFor(begin, 0);
  RETURN_IF_ERROR(socket_->Write(Format({"GET", key}), deadline));
  ASSIGN_OR_RETURN(const std::string line, Line(deadline));
  RedisReply reply;
  if (const std::optional<size_t> bytes = LengthOf(line); bytes && line[0] == '$') {
    if (*bytes > most_bytes) {
      return base::Error(
          absl::StatusCode::kDataLoss, "REDIS_TOO_LARGE",
          absl::StrCat("a value of ", *bytes, " bytes, where at most ", most_bytes, " can be"));
    }
    reply.kind = RedisReply::Kind::kValue;
    RETURN_IF_ERROR(ReadValue(*bytes, DeadlineFor(begin, *bytes), reply.value));
  } else {
    ASSIGN_OR_RETURN(reply, ParseLine(line));
  }
  if (buffered() != 0) return NoAnswer("more than the answer");
  return reply;
}

absl::StatusOr<RedisReply> RedisConnection::Command(absl::Span<const absl::string_view> words,
                                                    absl::Duration patience) {
  const std::string command = Format(words);
  const absl::Time deadline = DeadlineFor(base::RealClock().Now() + patience, command.size());
  RETURN_IF_ERROR(socket_->Write(command, deadline));
  ASSIGN_OR_RETURN(RedisReply reply, Reply(deadline));
  if (buffered() != 0) return NoAnswer("more than the answer");
  return reply;
}

absl::StatusOr<RedisReply> RedisConnection::Reply(absl::Time deadline) {
  ASSIGN_OR_RETURN(const std::string line, Line(deadline));
  return ParseLine(line);
}

absl::Status RedisConnection::Fill(absl::Time deadline) {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, buffered());
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == buffer_.size()) return NoAnswer("a line that does not end");
  ASSIGN_OR_RETURN(const size_t got,
                   socket_->Read(absl::MakeSpan(buffer_).subspan(end_), deadline));
  end_ += got;
  return absl::OkStatus();
}

absl::StatusOr<std::string> RedisConnection::Line(absl::Time deadline) {
  while (true) {
    const size_t at = Buffered().find(kEnd);
    if (at != absl::string_view::npos) {
      std::string line(Buffered().substr(0, at + kEnd.size()));
      begin_ += line.size();
      return line;
    }
    RETURN_IF_ERROR(Fill(deadline));
  }
}

// Lines are read by hiredis, whole and one at a time; its reader never sees a value or an array.
absl::StatusOr<RedisReply> RedisConnection::ParseLine(absl::string_view line) {
  const char type = line[0];
  if (type != '+' && type != '-' && type != ':' && line != "$-1\r\n") {
    return NoAnswer("another kind of reply");
  }
  void* read = nullptr;
  if (redisReaderFeed(reader_.get(), line.data(), line.size()) != REDIS_OK ||
      redisReaderGetReply(reader_.get(), &read) != REDIS_OK || read == nullptr) {
    return NoAnswer("a line that cannot be read");
  }
  const std::unique_ptr<redisReply, void (*)(void*)> reply(static_cast<redisReply*>(read),
                                                           freeReplyObject);
  RedisReply out;
  switch (reply->type) {
    case REDIS_REPLY_STATUS:
    case REDIS_REPLY_ERROR:
      out.kind =
          reply->type == REDIS_REPLY_STATUS ? RedisReply::Kind::kStatus : RedisReply::Kind::kError;
      out.text.assign(reply->str, std::min<size_t>(reply->len, kMaxErrorText));
      // "..., with args beginning with": ours are keys and rows, not for a log.
      out.text.resize(std::min(out.text.size(), out.text.find(", with args")));
      return out;
    case REDIS_REPLY_INTEGER:
      out.kind = RedisReply::Kind::kInteger;
      out.integer = reply->integer;
      return out;
    default:
      return out;  // nil
  }
}

absl::Status RedisConnection::ReadInto(absl::Span<char> to, absl::Time deadline) {
  const size_t here = std::min(to.size(), buffered());
  std::copy_n(buffer_.data() + begin_, here, to.data());
  begin_ += here;
  to.remove_prefix(here);
  while (!to.empty()) {
    ASSIGN_OR_RETURN(const size_t got, socket_->Read(to, deadline));
    to.remove_prefix(got);
  }
  return absl::OkStatus();
}

// The rows are read into the place where they stay, and the CRLF behind them with them.
absl::Status RedisConnection::ReadValue(size_t bytes, absl::Time deadline, RecordPieces& value) {
  const size_t first = std::min(bytes, RecordCodec::kPrefixBytes);
  while (buffered() < first) RETURN_IF_ERROR(Fill(deadline));
  value.head.resize(RecordCodec::HeadBytes(Buffered().substr(0, first), bytes));
  RETURN_IF_ERROR(ReadInto(absl::MakeSpan(value.head), deadline));
  value.body.resize(bytes - value.head.size() + kEnd.size());
  RETURN_IF_ERROR(
      ReadInto({reinterpret_cast<char*>(value.body.data()), value.body.size()}, deadline));
  const absl::string_view end(
      reinterpret_cast<const char*>(value.body.data()) + value.body.size() - kEnd.size(),
      kEnd.size());
  if (end != kEnd) return NoAnswer("a value that does not end where it should");
  value.body.resize(value.body.size() - kEnd.size());
  return absl::OkStatus();
}

}  // namespace tessera::store
