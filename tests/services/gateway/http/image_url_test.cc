#include "services/gateway/http/image_url.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <array>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tessera::gateway::http {
namespace {

TEST(ImageUrlTest, UrlsComeApart) {
  absl::StatusOr<ImageUrl> url = ParseImageUrl("HTTPS://Pics.Example:8443/a/b.png?x=1#part");
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_TRUE(url->tls);
  EXPECT_EQ(url->host, "pics.example");
  EXPECT_EQ(url->port, 8443);
  EXPECT_EQ(url->authority, "pics.example:8443");
  EXPECT_EQ(url->target, "/a/b.png?x=1");
  url = ParseImageUrl("http://[2001:DB8::1]?q");
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_EQ(url->host, "2001:db8::1");
  EXPECT_EQ(url->port, 80);
  EXPECT_EQ(url->target, "/?q");
}

TEST(ImageUrlTest, WhatIsNoUrlIsRefused) {
  for (const std::string& bad : std::vector<std::string>{
           "", "http://", "http:///x", "https:a", "ftp://a/", "http://a b/", "http://a\r\nHost:b/",
           "http://u:p@a/", "http://a@b/", "http://a:0/", "http://a:65536/", "http://a:x/",
           "http://a:-1/", "http://[::1/", "http://[::1]x/", "http://a\\b/", "http://a%2eb/",
           "http://\xc3\xa9/", absl::StrCat("http://a/", std::string(4096, 'x'))}) {
    EXPECT_EQ(base::ReasonOf(ParseImageUrl(bad).status()), "IMAGE_URL") << bad;
  }
}

TEST(ImageUrlTest, OnlyListedHostsAreAllowed) {
  const std::vector<std::string> hosts = {"a.b", "c.d:8080"};
  const auto allowed = [&hosts](const char* url) { return IsAllowed(*ParseImageUrl(url), hosts); };
  EXPECT_TRUE(allowed("http://a.b/x"));
  EXPECT_TRUE(allowed("https://A.B/x"));
  EXPECT_TRUE(allowed("http://c.d:8080/x"));
  for (const char* other : {"http://a.b:81/", "http://a.b:443/", "https://a.b:80/", "http://x.a.b/",
                            "http://a.b.c/", "http://b/", "http://c.d/", "https://c.d/"}) {
    EXPECT_FALSE(allowed(other)) << other;
  }
}

bool Public(const char* text) {
  in_addr v4 = {};
  if (inet_pton(AF_INET, text, &v4) == 1) return IsPublicV4(ntohl(v4.s_addr));
  std::array<unsigned char, 16> v6 = {};
  EXPECT_EQ(inet_pton(AF_INET6, text, v6.data()), 1) << text;
  return IsPublicV6(v6);
}

TEST(ImageUrlTest, AddressesThatAreNotPublic) {
  for (const char* other : {"0.0.0.0",
                            "0.1.2.3",
                            "10.0.0.1",
                            "10.255.255.255",
                            "100.64.0.1",
                            "100.127.255.255",
                            "127.0.0.1",
                            "127.255.0.1",
                            "169.254.169.254",
                            "172.16.0.1",
                            "172.31.255.255",
                            "192.0.0.8",
                            "192.0.2.1",
                            "192.88.99.1",
                            "192.168.1.1",
                            "198.18.0.1",
                            "198.19.255.255",
                            "198.51.100.7",
                            "203.0.113.9",
                            "224.0.0.1",
                            "239.1.1.1",
                            "240.0.0.1",
                            "255.255.255.255",
                            "::",
                            "::1",
                            "::ffff:8.8.8.8",
                            "::ffff:127.0.0.1",
                            "::127.0.0.1",
                            "64:ff9b::7f00:1",
                            "100::1",
                            "2001::1",
                            "2001:1ff::1",
                            "2001:db8::1",
                            "2002:7f00:1::",
                            "3fff::1",
                            "fc00::1",
                            "fd12::1",
                            "fe80::1",
                            "fec0::1",
                            "ff02::1",
                            "4000::1"}) {
    EXPECT_FALSE(Public(other)) << other;
  }
  for (const char* good :
       {"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.1", "100.63.255.255", "100.128.0.1",
        "172.15.255.255", "172.32.0.1", "198.20.0.1", "223.255.255.255", "2001:200::1",
        "2606:4700::1111", "2a00:1450::1", "3ffe::1"}) {
    EXPECT_TRUE(Public(good)) << good;
  }
}

}  // namespace
}  // namespace tessera::gateway::http
