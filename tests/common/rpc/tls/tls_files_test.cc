#include "common/rpc/tls/tls_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "common/base/error.h"
#include "common/base/json.h"
#include "tests/support/certificates.h"

namespace tessera::rpc {
namespace {

using testing::Certificates;
using testing::CopyOver;
using ::testing::HasSubstr;
using testing::WriteOver;

template <typename Condition>
bool Becomes(const Condition& condition) {
  const absl::Time deadline = absl::Now() + absl::Seconds(120);
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

class TlsFilesTest : public ::testing::Test {
 protected:
  TlsFilesTest() {
    certificates_.Sign("one");
    certificates_.Sign("two");
  }
  TlsFiles Files() {
    CopyOver(certificates_.cert("one"), File("cert"));
    CopyOver(certificates_.key("one"), File("key"));
    CopyOver(certificates_.ca(), File("ca"));
    return {
        .ca = File("ca"), .cert = File("cert"), .key = File("key"), .refresh = absl::Seconds(1)};
  }
  std::string File(const std::string& name) const { return certificates_.File(name); }
  std::string Pair(const std::string& name) const {
    return base::ReadFile(certificates_.cert(name)).value() + "\n" +
           base::ReadFile(certificates_.key(name)).value();
  }

  Certificates certificates_;
};

TEST_F(TlsFilesTest, AnErrorNamesFlagAndFile) {
  const TlsFiles good = Files();
  std::ofstream(File("text")) << "no certificate\n";
  std::ofstream(File("broken")) << "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
  struct Case {
    std::string TlsFiles::*file;
    std::string value, flag, why;
  };
  for (const Case& bad : std::vector<Case>{
           {&TlsFiles::ca, File("absent"), "CA", File("absent")},
           {&TlsFiles::ca, File("text"), "CA", "no certificate in PEM"},
           {&TlsFiles::cert, File("text"), "CERT", "no certificate in PEM"},
           {&TlsFiles::cert, File("broken"), "CERT", "certificate 1 of the file is broken"},
           {&TlsFiles::cert, certificates_.cert("two"), "KEY", "not the key of the certificate"},
           {&TlsFiles::cert, certificates_.key("one"), "CERT", "no certificate in PEM"},
           {&TlsFiles::key, certificates_.cert("one"), "KEY", "no private key in PEM"},
           {&TlsFiles::key, File("absent"), "KEY", File("absent")},
           {&TlsFiles::key, "", "KEY", "--KEY is missing"},
           {&TlsFiles::cert, "", "CERT", "--CERT is missing"}}) {
    TlsFiles files = good;
    files.ca_flag = "CA";
    files.cert_flag = "CERT";
    files.key_flag = "KEY";
    files.*bad.file = bad.value;
    const absl::Status status = TlsWatch::Create(files).status();
    EXPECT_EQ(base::ReasonOf(status), "BAD_OPTION") << bad.value;
    EXPECT_EQ(base::FieldOf(status), bad.flag) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--" + bad.flag));
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.why));
  }
}

TEST_F(TlsFilesTest, AChainWithABrokenLinkIsRefused) {
  TlsFiles files = Files();
  std::ofstream(files.cert, std::ios::app)
      << "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
  EXPECT_THAT(std::string(TlsWatch::Create(files).status().message()), HasSubstr("certificate 2"));
}

TEST_F(TlsFilesTest, APairIsTakenAsAWholeOrNotAtAll) {
  const auto watch = TlsWatch::Create(Files());
  ASSERT_TRUE(watch.ok()) << watch.status();
  EXPECT_EQ(base::ReadFile((*watch)->pair_path()).value(), Pair("one"));
  EXPECT_EQ(base::ReadFile((*watch)->ca_path()).value(), base::ReadFile(File("ca")).value());

  CopyOver(certificates_.cert("two"), File("cert"));  // its key has not come yet
  EXPECT_TRUE(Becomes([&] { return !(*watch)->state().ok(); }));
  EXPECT_EQ(base::FieldOf((*watch)->state()), "tls_key_file");
  EXPECT_EQ(base::ReadFile((*watch)->pair_path()).value(), Pair("one"));

  CopyOver(certificates_.key("two"), File("key"));
  EXPECT_TRUE(Becomes([&] { return (*watch)->state().ok(); }));
  EXPECT_EQ(base::ReadFile((*watch)->pair_path()).value(), Pair("two"));
}

TEST_F(TlsFilesTest, HalfAFileIsNotTaken) {
  const auto watch = TlsWatch::Create(Files());
  ASSERT_TRUE(watch.ok()) << watch.status();
  const std::string whole = base::ReadFile(certificates_.cert("one")).value();
  WriteOver(whole.substr(0, whole.size() / 2), File("cert"));
  EXPECT_TRUE(Becomes([&] { return !(*watch)->state().ok(); }));
  EXPECT_EQ(base::FieldOf((*watch)->state()), "tls_cert_file");
  EXPECT_EQ(base::ReadFile((*watch)->pair_path()).value(), Pair("one"));
}

}  // namespace
}  // namespace tessera::rpc
