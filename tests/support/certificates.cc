#include "tests/support/certificates.h"

#include <filesystem>
#include <fstream>
#include <vector>

#include "common/base/check.h"
#include "common/base/json.h"
#include "tests/support/child_process.h"

namespace tessera::testing {
namespace {

void OpenSsl(std::vector<std::string> arguments, const std::string& log) {
  arguments.insert(arguments.begin(), "openssl");
  CHECK_EQ(ChildProcess(arguments, log).Wait(), 0);
}

}  // namespace

Certificates::Certificates() {
  OpenSsl({"req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
           "-days", "2", "-subj", "/CN=" + std::filesystem::path(dir_.path()).filename().string(),
           "-keyout", File("ca.key"), "-out", ca()},
          File("log"));
}

void Certificates::Sign(const std::string& name, const std::string& subject, int days) {
  std::ofstream(File("names")) << "subjectAltName=" << subject << "\n";
  OpenSsl({"req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
           "/CN=" + name, "-keyout", key(name), "-out", File(name + ".csr")},
          File("log"));
  OpenSsl({"x509", "-req", "-in", File(name + ".csr"), "-CA", ca(), "-CAkey", File("ca.key"),
           "-CAcreateserial", "-days", std::to_string(days), "-extfile", File("names"), "-out",
           cert(name)},
          File("log"));
}

void CopyOver(const std::string& from, const std::string& to) {
  const auto content = base::ReadFile(from);
  CHECK(content.ok());
  WriteOver(*content, to);
}

void WriteOver(const std::string& content, const std::string& to) {
  std::ofstream(to + ".new") << content;
  std::filesystem::rename(to + ".new", to);
}

}  // namespace tessera::testing
