#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace tessera::testing {

// A program that a test runs: killed and waited for when this dies, and killed by the kernel where
// the thread that started it ends before. One thread.
class ChildProcess {
 public:
  // `arguments`: the program, looked for along PATH, then its arguments. What it prints goes to
  // `log_file`. Starting never fails: a program that is not there exits with 127.
  ChildProcess(const std::vector<std::string>& arguments, const std::string& log_file);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void Signal(int number);
  // Waits for its end; its exit status, or 128 + the signal that ended it.
  int Wait();
  // Whether it has not ended yet.
  bool Runs();

 private:
  pid_t pid_;  // 0: waited for
  int status_ = 0;
};

}  // namespace tessera::testing
