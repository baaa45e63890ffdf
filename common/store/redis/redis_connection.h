#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/store/record_codec.h"
#include "common/store/redis/redis_options.h"
#include "common/store/redis/redis_socket.h"

struct redisReader;

namespace tessera::store {

// What Redis answered.
struct RedisReply {
  enum class Kind { kStatus, kError, kInteger, kNil, kValue };
  Kind kind = Kind::kNil;
  std::string text;     // of a status or an error
  int64_t integer = 0;  // of an integer
  RecordPieces value;   // of a value

  size_t value_bytes() const { return value.head.size() + value.body.size(); }
  // Whether it is an error that the server would give anybody, for now.
  bool MeansDown() const;
  // Whether it is an error of a server that is no longer the one for us, or not the one to write
  // to.
  bool MeansMoved() const;
};

// One connection that is logged in. One thread at a time; one command at a time, whose answer is
// read before the next is sent. After an error status (not an error reply) what will come next is
// not known: destroy it.
class RedisConnection {
 public:
  // Connects, then sends AUTH, SELECT, PING and a GET as `options` need them: some errors are given
  // to who reads alone. UNAVAILABLE, beside RedisSocket's reasons REDIS_REFUSED: the server does
  // not want us, or not yet. `tls` may be null.
  static absl::StatusOr<std::unique_ptr<RedisConnection>> Open(
      const RedisOptions& options, const RedisTls* tls, absl::Span<const SocketAddress> addresses);
  ~RedisConnection();

  // Whether the server is there, and no byte is left of an earlier answer. Never waits.
  bool IsQuiet();
  // GET. DATA_LOSS, reason REDIS_PROTOCOL: what came is no answer; REDIS_TOO_LARGE: a value of more
  // than `most_bytes`, of which no byte is read. RedisSocket's errors.
  absl::StatusOr<RedisReply> Get(absl::string_view key, size_t most_bytes);
  // Any command that is not answered with a value. Has the more time the more is sent, and
  // `patience` beside it.
  absl::StatusOr<RedisReply> Command(absl::Span<const absl::string_view> words,
                                     absl::Duration patience = absl::ZeroDuration());

 private:
  struct ReaderFree {
    void operator()(redisReader* reader) const;
  };

  RedisConnection(const RedisOptions& options, std::unique_ptr<RedisSocket> socket);

  absl::Status LogIn(absl::Time deadline);
  absl::Time DeadlineFor(absl::Time begin, size_t bytes) const;
  // Reads on into the buffer.
  absl::Status Fill(absl::Time deadline);
  // The next line with its CRLF, taken out of the buffer.
  absl::StatusOr<std::string> Line(absl::Time deadline);
  absl::StatusOr<RedisReply> Reply(absl::Time deadline);
  absl::StatusOr<RedisReply> ParseLine(absl::string_view line);
  absl::Status ReadValue(size_t bytes, absl::Time deadline, RecordPieces& value);
  // Into `to`, first what is in the buffer.
  absl::Status ReadInto(absl::Span<char> to, absl::Time deadline);
  size_t buffered() const { return end_ - begin_; }
  absl::string_view Buffered() const { return {buffer_.data() + begin_, buffered()}; }

  const RedisOptions& options_;
  const std::unique_ptr<RedisSocket> socket_;
  const std::unique_ptr<redisReader, ReaderFree> reader_;
  std::array<char, 16 << 10> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace tessera::store
