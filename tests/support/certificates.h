#pragma once

#include <string>

#include "tests/support/temp_dir.h"

namespace tessera::testing {

// An authority in a directory of its own, and what it signs, by the openssl command. One thread.
class Certificates {
 public:
  Certificates();

  std::string ca() const { return File("ca.pem"); }
  // NAME.pem and NAME.key, for the names of `subject`, as openssl's subjectAltName has them;
  // `days` below 0: expired.
  void Sign(const std::string& name, const std::string& subject = "IP:127.0.0.1", int days = 2);
  std::string cert(const std::string& name) const { return File(name + ".pem"); }
  std::string key(const std::string& name) const { return File(name + ".key"); }
  std::string File(const std::string& name) const { return dir_.path() + "/" + name; }

 private:
  const TempDir dir_;
};

// Puts a copy of one file at another's place, in one step.
void CopyOver(const std::string& from, const std::string& to);
// Puts a file with this content at its place, in one step.
void WriteOver(const std::string& content, const std::string& to);

}  // namespace tessera::testing
