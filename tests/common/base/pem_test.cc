#include "common/base/pem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/json.h"
#include "tests/support/certificates.h"
#include "tests/support/child_process.h"

namespace tessera::base {
namespace {

using ::testing::HasSubstr;

class PemTest : public ::testing::Test {
 protected:
  PemTest() {
    certificates_.Sign("one");
    certificates_.Sign("two");
  }
  std::string Cert(const std::string& name) const {
    return ReadFile(certificates_.cert(name)).value();
  }
  std::string Key(const std::string& name) const {
    return ReadFile(certificates_.key(name)).value();
  }

  testing::Certificates certificates_;
};

TEST_F(PemTest, CertificatesAreLookedAtOneByOne) {
  EXPECT_TRUE(CheckCertificates(Cert("one")).ok());
  EXPECT_TRUE(CheckCertificates("a word before\n" + Cert("one") + "\n" + Cert("two")).ok());
  for (const std::string& none : {std::string(), std::string("text"), Key("one")}) {
    EXPECT_THAT(std::string(CheckCertificates(none).message()), HasSubstr("no certificate"));
  }
  const std::string half = Cert("two").substr(0, Cert("two").size() / 2);
  EXPECT_THAT(std::string(CheckCertificates(Cert("one") + half).message()),
              HasSubstr("certificate 2"));
}

TEST_F(PemTest, AKeyBelongsToTheFirstCertificate) {
  EXPECT_TRUE(CheckKeyPair(Cert("one"), Key("one")).ok());
  EXPECT_TRUE(CheckKeyPair(Cert("one") + Cert("two"), Key("one")).ok());
  EXPECT_FALSE(CheckKeyPair(Cert("two") + Cert("one"), Key("one")).ok());
  EXPECT_THAT(std::string(CheckKeyPair(Cert("two"), Key("one")).message()),
              HasSubstr("not the key of the certificate"));
  for (const std::string& none : {std::string(), Cert("one"), Key("one").substr(0, 60)}) {
    EXPECT_THAT(std::string(CheckKeyPair(Cert("one"), none).message()),
                HasSubstr("no private key"));
  }
}

// Nobody is there to type it.
TEST_F(PemTest, AKeyWithAPasswordIsRefused) {
  const std::string sealed = certificates_.File("sealed.key");
  ASSERT_EQ(testing::ChildProcess({"openssl", "pkey", "-in", certificates_.key("one"), "-aes256",
                                   "-passout", "pass:word", "-out", sealed},
                                  certificates_.File("log"))
                .Wait(),
            0);
  EXPECT_THAT(std::string(CheckKeyPair(Cert("one"), ReadFile(sealed).value()).message()),
              HasSubstr("no password"));
}

}  // namespace
}  // namespace tessera::base
