#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "tests/services/decode/template/run_template.h"

namespace tessera::decode::jinja {
namespace {

using ::testing::HasSubstr;

std::string Times(int count, absl::string_view text) {
  std::string out;
  for (int i = 0; i < count; ++i) out.append(text.data(), text.size());
  return out;
}

void ExpectRefused(const std::string& source, const Limits& limits = {}) {
  const absl::StatusOr<Text> text = RunTemplate(source, {}, limits);
  ASSERT_FALSE(text.ok()) << source.substr(0, 80);
  EXPECT_EQ(base::ReasonOf(text.status()), "TEMPLATE_FAILED") << text.status();
}

TEST(TemplateLimits, DeepNestingIsRefusedWhileParsing) {
  constexpr int kMany = 100'000;
  for (const char* open : {"(", "[", "{", "not ", "-", "x[", "x(", "x|default(", "{1:", "1 if ",
                           "a.b[", "1 is eq (", "1 + (", "1 in ["}) {
    SCOPED_TRACE(open);
    ExpectRefused("{{ " + Times(kMany, open));
    ExpectRefused("{{ " + Times(kMany, open) + "1");
  }
  for (const char* tag :
       {"{% if 1 %}", "{% for x in y %}", "{% with %}", "{% set x %}", "{% macro m() %}",
        "{% filter upper %}", "{% generation %}", "{% call x() %}"}) {
    ExpectRefused(Times(20'000, tag));
  }
  ExpectRefused("{% set " + Times(kMany, "(") + "a = 1 %}");
}

TEST(TemplateLimits, LongChainsAreRefusedWhileParsing) {
  for (const char* link : {"+1", "-1", "*1", ".a", "[0]", "()", "|upper", " if 1", " is defined"}) {
    ExpectRefused("{{ x" + Times(100'000, link) + " }}");
  }
}

TEST(TemplateLimits, WideExpressionsAreFine) {
  EXPECT_TRUE(RunTemplate("{{ 1" + Times(5000, "~1") + " }}").ok());
  EXPECT_TRUE(RunTemplate("{{ [1" + Times(5000, ",1") + "]|length }}").ok());
  EXPECT_TRUE(RunTemplate("{% if 0 %}" + Times(5000, "{% elif 0 %}") + "{% endif %}").ok());
}

TEST(TemplateLimits, NestedCallsEnd) {
  ExpectRefused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
  ExpectRefused("{% macro m(x) %}{{ [m([x])] }}{% endmacro %}{{ m(1) }}");
  ExpectRefused(
      "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}");
}

TEST(TemplateLimits, ATypicalThreadsStackIsEnough) {
  absl::Status status;
  std::thread([&status] {
    status = RunTemplate(
                 "{% macro m() %}{% if 1 %}{{ (m() ~ '') | upper }}{% endif %}"
                 "{% endmacro %}{{ m() }}")
                 .status();
  }).join();
  EXPECT_EQ(base::ReasonOf(status), "TEMPLATE_FAILED");
}

TEST(TemplateLimits, EndlessLoopsEnd) {
  const std::string range = "{% for a in range(99999) %}";
  ExpectRefused(range + range + "{% endfor %}{% endfor %}");
  ExpectRefused("{{ range(100001) }}");
  ExpectRefused("{{ range(0, -9223372036854775807, -1) }}");
  ExpectRefused("{{ range(9223372036854775807) | list }}");
}

TEST(TemplateLimits, HugeTextsEnd) {
  ExpectRefused("{{ 'x' * 9223372036854775807 }}");
  ExpectRefused("{{ 'x' * 17000000 }}");
  ExpectRefused("{{ ['x'] * 17000000 }}");
  ExpectRefused(
      "{% set ns = namespace(x='0123456789') %}{% for i in range(99) %}"
      "{% set ns.x = ns.x + ns.x %}{% endfor %}");
  ExpectRefused("{% set x = 'x' * 5000000 %}{{ x.replace('', x) }}");
  ExpectRefused("{% set x = 'x' * 10000 %}{{ (x | list) | join(x) }}");
  ExpectRefused("{% for i in range(99999) %}{{ '%s' % ('x' * 1000) }}{% endfor %}");
  ExpectRefused("{{ 'x' | indent(99999999) }}");
  ExpectRefused("{{ {'a': [1]} | tojson(indent=99999999) }}");
  ExpectRefused("{{ '%.99999999f' % 1.0 }}");
  ExpectRefused(
      "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}"
      "{% set ns.l = ns.l + ['x' * 100000] %}{% endfor %}");
}

TEST(TemplateLimits, DeepAndWideValuesEnd) {
  const std::string start = "{% set ns = namespace(x=1, y=1) %}{% for i in range(9999) %}";
  ExpectRefused(start + "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}");
  ExpectRefused(start + "{% set ns.x = {'a': ns.x} %}{% endfor %}{{ ns.x }}");
  // Shared twice at each level: 2^n values when walked over.
  ExpectRefused(start +
                "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}"
                "{% endfor %}{{ ns.x == ns.y }}");
  ExpectRefused(start + "{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ {ns.x: 1} }}");
}

TEST(TemplateLimits, ValuesThatHoldThemselvesGoAway) {
  // The leak checker is the judge.
  EXPECT_TRUE(
      RunTemplate("{% set ns = namespace(a=1) %}{% set ns.a = [ns] %}{% set ns.b = ns %}").ok());
  EXPECT_TRUE(RunTemplate("{% set ns = namespace(a=1) %}{% macro m() %}{% endmacro %}"
                          "{% set ns.a = m %}{% for i in [1] %}{% set ns.b = loop %}{% endfor %}")
                  .ok());
  ExpectRefused("{% for i in [1] %}{{ loop.changed(loop) }}{% endfor %}");
  ExpectRefused(
      "{% set ns = namespace(a=1) %}{% for j in range(20000) %}{% set p = ns.a %}"
      "{% for i in [p] %}{% set ns.a = [loop] %}{% endfor %}{% endfor %}{{ ns.a }}");
}

TEST(TemplateLimits, MacrosAndLoopsDieWithTheirBlock) {
  ExpectRefused(
      "{% set ns = namespace(m=1) %}{% for i in [1] %}{% macro m() %}x{% endmacro %}"
      "{% set ns.m = m %}{% endfor %}{{ ns.m() }}");
}

TEST(TemplateLimits, OptionsCount) {
  Limits limits;
  limits.max_steps = 10;
  ExpectRefused("{% for i in range(9) %}{{ i }}{% endfor %}", limits);
  limits = Limits();
  limits.max_output_bytes = 5;
  ExpectRefused("123456", limits);
  EXPECT_TRUE(RunTemplate("12345", {}, limits).ok());
  limits = Limits();
  limits.max_source_bytes = 5;
  ExpectRefused("123456", limits);
  limits = Limits();
  limits.max_range = 3;
  ExpectRefused("{{ range(4) | list }}", limits);
}

TEST(TemplateErrors, NameWhatAndWhere) {
  const std::pair<const char*, const char*> cases[] = {
      {"a\nb{% frob %}", "line 2: unknown tag 'frob'"},
      {"\n\n{{ x | frob }}", "line 3: unknown filter 'frob'"},
      {"\n{{ x is frob }}", "line 2: unknown test 'frob'"},
      {"\n{{ x.y }}", "line 2: 'x' is undefined"},
      {"{{ 'a'.zfill(3) }}", "method 'zfill' of str is not supported"},
      {"{{ [1].append(2) }}", "method 'append' of list is not supported"},
      {"{{ strftime_now('%d') }}", "'strftime_now' is not supported"},
      {"{{ f(*x) }}", "*args and **kwargs are not supported"},
      {"{% for i in x recursive %}{% endfor %}", "recursive"},
      {"{% raw %}\n{% endra", "a raw block is not closed"},
      {"{{ 9223372036854775807 + 1 }}", "an integer beyond 64 bits"},
      {"{{ '\\ud800' }}", "an escape names no character"},
      {"{{ \"\xff\" ~ @ }}", "unexpected character '@'"}};
  for (const auto& [source, words] : cases) {
    const absl::StatusOr<Text> text = RunTemplate(source);
    ASSERT_FALSE(text.ok()) << source;
    EXPECT_THAT(std::string(text.status().message()), HasSubstr(words));
    EXPECT_THAT(std::string(text.status().message()), HasSubstr("line "));
  }
}

}  // namespace
}  // namespace tessera::decode::jinja
