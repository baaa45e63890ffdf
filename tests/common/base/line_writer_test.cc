#include "common/base/line_writer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tessera::base {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Minutes(5);

// Both ends of a pipe that nobody reads until the test does.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0); }
  ~Pipe() {
    for (const int end : ends_) close(end);
  }
  int in() const { return ends_[1]; }
  // What lies in it.
  std::string Read() {
    fcntl(ends_[0], F_SETFL, O_NONBLOCK);
    std::string all;
    char buffer[4096];
    for (ssize_t got; (got = read(ends_[0], buffer, sizeof(buffer))) > 0;) {
      all.append(buffer, static_cast<size_t>(got));
    }
    return all;
  }

 private:
  std::array<int, 2> ends_{};
};

std::string Line(int number) { return absl::StrCat("{\"line\":", number, "}\n"); }

TEST(LineWriterTest, NobodyWaitsForAReaderThatDoesNotRead) {
  Pipe pipe;
  LineWriter writer(pipe.in(), absl::ZeroDuration());
  constexpr int kThreads = 4, kLines = 20000;  // 1.2 MB for a pipe of 64 KiB
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&writer] {
      for (int n = 0; n < kLines; ++n) writer.Write(Line(n));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(writer.lost(), 0);
  const std::string read = pipe.Read();
  const auto lines = std::count(read.begin(), read.end(), '\n');
  EXPECT_EQ(lines + writer.lost(), kThreads * kLines);
  EXPECT_EQ(read.back(), '\n');
}

TEST(LineWriterTest, TellsWhatWasLostOnceThereIsRoomAgain) {
  Pipe pipe;
  LineWriter writer(pipe.in(), absl::ZeroDuration());
  while (writer.lost() < 3) writer.Write(Line(1));
  pipe.Read();
  writer.Write(Line(2));
  const std::vector<std::string> lines = absl::StrSplit(pipe.Read(), '\n');
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[0], HasSubstr("\"lines\":3}"));
  EXPECT_EQ(lines[1] + "\n", Line(2));
  writer.Write(Line(3));
  EXPECT_EQ(pipe.Read(), Line(3));  // told once
  EXPECT_EQ(writer.lost(), 3);
}

TEST(LineWriterTest, WaitsForAReaderThatIsOnlySlow) {
  Pipe pipe;
  LineWriter filler(pipe.in(), absl::ZeroDuration());
  while (filler.lost() == 0) filler.Write(Line(1));
  LineWriter writer(pipe.in(), kLong);
  std::thread waits([&writer] { writer.Write(Line(2)); });
  std::string read;
  while (!absl::EndsWith(read, Line(2))) read += pipe.Read();
  waits.join();
  EXPECT_EQ(writer.lost(), 0);
}

TEST(LineWriterTest, OnlyTheFirstLineWaits) {
  Pipe pipe;
  LineWriter filler(pipe.in(), absl::ZeroDuration());
  while (filler.lost() == 0) filler.Write(Line(1));
  LineWriter writer(pipe.in(), absl::Milliseconds(100));
  // With the patience of each, this would take hours, and the test its end.
  for (int n = 0; n < 200000; ++n) writer.Write(Line(n));
  EXPECT_EQ(writer.lost(), 200000);
}

TEST(LineWriterTest, AReaderThatHasGoneIsNobodyToTell) {
  std::signal(SIGPIPE, SIG_IGN);
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  close(ends[0]);
  LineWriter writer(ends[1], kLong);
  writer.Write(Line(1));
  EXPECT_EQ(writer.lost(), 1);
  close(ends[1]);
}

}  // namespace
}  // namespace tessera::base
