#include <gtest/gtest.h>

#include "tests/services/decode/template/run_template.h"

namespace tessera::decode::jinja {
namespace {

// The rendering of `source` with u = "uSer", l = ["ab", "cd"] and d = {"text": "xy"} written by a
// user; what is a user's stands between « and ».
std::string Marked(absl::string_view source) {
  const Globals globals = {
      {"u", Value::String("uSer", true)},
      {"n", Value::String("12", true)},
      {"l", Value::List({Value::String("ab", true), Value::String("cd", true)})},
      {"d", Value::Dict({{Value::String("text"), Value::String("xy", true)}})}};
  const absl::StatusOr<Text> text = RunTemplate(source, globals);
  if (!text.ok()) return text.status().ToString();
  std::string out;
  size_t at = 0;
  for (const ByteRange& range : text->untrusted()) {
    EXPECT_LT(range.begin, range.end);
    out += text->bytes().substr(at, range.begin - at) + "«" +
           text->bytes().substr(range.begin, range.end - range.begin) + "»";
    at = range.end;
  }
  return out + text->bytes().substr(at);
}

struct Case {
  const char* source;
  const char* marked;
};

TEST(Provenance, FollowsEveryCharacter) {
  const Case cases[] = {
      {"a{{ u }}b", "a«uSer»b"},
      {"{{ 'x' + u + 'y' }}", "x«uSer»y"},
      {"{{ 'x' ~ u ~ 1 }}", "x«uSer»1"},
      {"{{ u[1:3] }}{{ u[0] }}{{ u[::-1] }}", "«SeureSu»"},
      {"{{ ('<' ~ u)[:3] }}", "<«uS»"},
      {"{{ u | upper }}{{ u.lower() }}{{ u | title }}{{ u | capitalize }}", "«USERuserUserUser»"},
      {"{{ (' ' ~ u ~ ' ') | trim }}|{{ ('-' ~ u).strip('-') }}", "«uSer»|«uSer»"},
      {"{{ ('a' ~ u).replace('S', '__') }}", "a«u__er»"},
      {"{{ ('a-b' ~ u) | replace('-', '+') }}", "a+b«uSer»"},
      {"{{ u.split('S') | join('|') }}", "«u|er»"},
      {"{{ 'a,b'.split(',') | join(u) }}", "a«uSer»b"},
      {"{{ l | join('|') }}", "«ab»|«cd»"},
      {"{{ l }}", "['«ab»', '«cd»']"},
      {"{{ l | tojson }}{{ d | tojson }}", "[\"«ab»\", \"«cd»\"]{\"text\": \"«xy»\"}"},
      {"{{ '%s-%s' % (u, 'k') }}{{ '<%s>' | format(u) }}", "«uSer»-k<«uSer»>"},
      {"{{ '[{}]'.format(u) }}", "[«uSer»]"},
      {"{{ u * 2 }}", "«uSeruSer»"},
      {"{{ n | int + 1 }} {{ n | float }} {{ -(n | int) }}", "«13» «12.0» «-12»"},
      {"{{ u | length }}{{ u == 'uSer' }}", "4True"},
      {"{% set x = u %}{% set ns = namespace(v=x) %}{{ ns.v }}", "«uSer»"},
      {"{% set x %}a{{ u }}{% endset %}{{ x }}", "a«uSer»"},
      {"{% for c in u %}{{ c }}.{% endfor %}", "«u».«S».«e».«r»."},
      {"{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(u) }}", "<«uSer»>"},
      {"{% filter upper %}a{{ u }}{% endfilter %}", "A«USER»"},
      {"{{ l | map('upper') | list | first }}{{ l | last }}", "«ABcd»"},
      {"{{ d.text }}{{ d['text'] }}{{ d.items() | list }}", "«xyxy»[('text', '«xy»')]"},
      {"{{ u | default('x') }}{{ missing | default(u) }}", "«uSeruSer»"},
      {"{{ u | string | indent }}{{ ('x\n' ~ u) | indent(2) }}", "«uSer»x«\n  uSer»"},
      {"{{ u if u else 'no' }}{{ u or 'x' }}", "«uSeruSer»"},
      {"{{ u | list | sort | join }}{{ u | reverse }}", "«erSureSu»"},
      {"{{ l | sum(start=[]) if false else l[0] }}", "«ab»"},
      {"{{ {u: 1} }}", "{'«uSer»': 1}"},
  };
  for (const Case& one : cases) EXPECT_EQ(Marked(one.source), one.marked) << one.source;
}

TEST(Provenance, WhatReplacesAUsersTextIsTheUsers) {
  EXPECT_EQ(Marked("{{ u | replace('uSer', '<image>') }}"), "«<image>»");
  EXPECT_EQ(Marked("{{ ('u' ~ u) | replace('uu', '<image>') }}"), "«<image>Ser»");
  EXPECT_EQ(Marked("{{ u.replace('', '-') }}"), "«-u-S-e-r-»");
}

TEST(Provenance, TextOfATemplateIsTrusted) {
  EXPECT_EQ(Marked("{{ 'abc' | upper }}{{ ['a'] }}{{ 1.5 }}{{ none }}{{ {'a': true} | tojson }}"),
            "ABC['a']1.5None{\"a\": true}");
}

TEST(TextTest, PartsKeepTheirRanges) {
  Text text("ab");
  text.Append("cd", true);
  text.Append("ef", true);
  text.Append("gh", false);
  ASSERT_EQ(text.untrusted().size(), 1u);
  EXPECT_EQ(text.untrusted()[0].begin, 2u);
  EXPECT_EQ(text.untrusted()[0].end, 6u);
  const Text middle = text.Sub(3, 7);
  EXPECT_EQ(middle.bytes(), "defg");
  ASSERT_EQ(middle.untrusted().size(), 1u);
  EXPECT_EQ(middle.untrusted()[0].end, 3u);
  EXPECT_TRUE(text.AnyUntrusted(5, 6));
  EXPECT_FALSE(text.AnyUntrusted(6, 8));
  EXPECT_FALSE(text.AnyUntrusted(0, 2));
  EXPECT_TRUE(text.Sub(6, 8).untrusted().empty());
}

}  // namespace
}  // namespace tessera::decode::jinja
