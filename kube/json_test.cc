#include "kube/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kube/yaml_strict.h"

namespace sublet::kube {
namespace {

TEST(Json, RoundTripsEveryKindOfValue) {
  for (
      const char* text :
      {R"({"a":1,"b":[true,false,null],"c":{"d":"x\ny \"q\" \\ \u0001"},"e":-9223372036854775808})",
       R"({"big":18446744073709551615,"f":0.1,"g":1e+30,"h":"\u00e4"})", "[]", "{}", "\"x\"", "0",
       R"({"a":{"b":{"c":[[],{}]}}})"}) {
    const auto parsed = ParseJson(text);
    ASSERT_TRUE(parsed.ok()) << text << ": " << parsed.error().message();
    EXPECT_EQ(*ParseJson(Dump(*parsed)), *parsed) << text;
    EXPECT_EQ(*parsed, Json::parse(text)) << text;
    EXPECT_EQ(*ParseJson(DumpPretty(*parsed)), *parsed) << text;
  }
}

TEST(Json, NumbersKeepTheirValue) {
  for (const char* text : {"0.1", "1.7976931348623157e+308", "123456789.123456789", "5e-324"}) {
    EXPECT_EQ(ParseJson(text)->get<double>(), std::strtod(text, nullptr)) << text;
  }
  EXPECT_EQ(Dump(*ParseJson("1.0")), "1");
  EXPECT_EQ(Dump(*ParseJson("2.50")), "2.5");
  EXPECT_EQ(Dump(*ParseJson("9223372036854775807")), "9223372036854775807");
}

TEST(Json, MistakesAreNamedAsGoNamesThem) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"", "unexpected end of JSON input"},
      {"{\"a\":", "unexpected end of JSON input"},
      {"{\"a\" 1}", "invalid character '1' after object key"},
      {"{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"},
      {"{\"a\":1,}", "invalid character '}' looking for beginning of object key string"},
      {"[1 2]", "invalid character '2' after array element"},
      {"[1,]", "invalid character ']' looking for beginning of value"},
      {"{} x", "invalid character 'x' after top-level value"},
      {"tru", "unexpected end of JSON input"},
      {"trux", "invalid character 'x' in literal true (expecting 'e')"},
      {"1.x", "invalid character 'x' after decimal point in numeric literal"},
      {"-", "unexpected end of JSON input"},
      {"\"a\nb\"", "invalid character '\\n' in string literal"},
      {"\"\\q\"", "invalid character 'q' in string escape code"},
      {"apiVersion: v1", "invalid character 'a' looking for beginning of value"},
  };
  for (const auto& c : cases) {
    const auto parsed = ParseJson(c.text);
    ASSERT_FALSE(parsed.ok()) << c.text;
    EXPECT_EQ(parsed.error().message(), c.message) << c.text;
    EXPECT_EQ(parsed.error().reason(), Reason::kBadRequest);
  }
}

TEST(Json, SizeAndDepthAreBounded) {
  EXPECT_EQ(ParseJson("[1,2,3]", {.bytes_max = 3}).error().reason(),
            Reason::kRequestEntityTooLarge);
  EXPECT_TRUE(ParseJson("[[[1]]]", {.depth_max = 3}).ok());
  EXPECT_EQ(ParseJson("[[[[1]]]]", {.depth_max = 3}).error().message(), "exceeded max depth");
  EXPECT_FALSE(ParseJson(std::string(100000, '[')).ok());
  EXPECT_FALSE(ParseJson("\"\xff\"").ok());
}

TEST(Json, StrictParsingNamesDuplicatesWithTheirPath) {
  std::vector<std::string> duplicates;
  const auto parsed = ParseJsonStrict(
      R"({"a":1,"spec":{"list":[{"x":1},{"y":1,"x":2,"y":3}],"n":1,"n":{"m":1,"m":2}},"a":2})", {},
      &duplicates);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(duplicates, (std::vector<std::string>{"spec.list[1].y", "spec.n", "spec.n.m", "a"}));
  EXPECT_EQ(Dump(*parsed), R"({"a":2,"spec":{"list":[{"x":1},{"x":2,"y":3}],"n":{"m":2}}})");
}

TEST(Json, InvalidUtf8IsReplacedWhenWritten) {
  EXPECT_EQ(Dump(Json("a\xff"
                      "b\xc3\xa4")),
            "\"a\xef\xbf\xbd"
            "b\xc3\xa4\"");
}

TEST(Json, FindWalksObjectsOnly) {
  const Json value = Json::parse(R"({"a":{"b":"x","n":3,"t":true}})");
  EXPECT_EQ(FindString(value, {"a", "b"}), "x");
  EXPECT_EQ(FindString(value, {"a", "n"}, "none"), "none");
  EXPECT_EQ(FindInt(value, {"a", "n"}), 3);
  EXPECT_TRUE(FindBool(value, {"a", "t"}));
  EXPECT_EQ(Find(value, {"a", "b", "c"}), nullptr);
}

TEST(Yaml, ScalarsFollowYaml11) {
  const struct {
    const char* text;
    const char* json;
  } cases[] = {
      {"a: yes", R"({"a":true})"},
      {"a: off", R"({"a":false})"},
      {"a: 'yes'", R"({"a":"yes"})"},
      {"a: ~\nb:\nc: null", R"({"a":null,"b":null,"c":null})"},
      {"a: 0777", R"({"a":511})"},
      {"a: 0o17", R"({"a":15})"},
      {"a: 0x1F", R"({"a":31})"},
      {"a: 1_000", R"({"a":1000})"},
      {"a: 1e3", R"({"a":1000})"},
      {"a: 1.5", R"({"a":1.5})"},
      {"a: 2020-01-01", R"({"a":"2020-01-01"})"},
      {"a: 1.2.3", R"({"a":"1.2.3"})"},
      {"a: 100m", R"({"a":"100m"})"},
      {"a: !!str 12", R"({"a":"12"})"},
      {"a: !!binary aGk=", R"({"a":"hi"})"},
      {"1: x\ntrue: z", R"({"1":"x","true":"z"})"},
      {"a: |\n  x\n  y\n", R"({"a":"x\ny\n"})"},
      {"a: >-\n  x\n  y\n", R"({"a":"x y"})"},
      {"a: &x {b: 1}\nc: *x\nd:\n  <<: *x\n  e: 2",
       R"({"a":{"b":1},"c":{"b":1},"d":{"b":1,"e":2}})"},
      {"- a\n- b: c\n  d: e", R"(["a",{"b":"c","d":"e"}])"},
      {"{a: b, c: [1, 2]}", R"({"a":"b","c":[1,2]})"},
  };
  for (const auto& c : cases) {
    const auto parsed = ParseYaml(c.text);
    ASSERT_TRUE(parsed.ok()) << c.text << ": " << parsed.error().message();
    EXPECT_EQ(Dump(*parsed), c.json) << c.text;
  }
}

TEST(Yaml, KeysThatStandTwiceAreTold) {
  std::vector<std::string> twice;
  const auto parsed = ParseYamlStrict("a: 1\nb:\n  c: x\n  c: z\na: 2\n", {}, &twice);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(Dump(*parsed), R"({"a":2,"b":{"c":"z"}})");
  EXPECT_EQ(twice, (std::vector<std::string>{"line 4: key \"c\" already set in map",
                                             "line 5: key \"a\" already set in map"}));
}

TEST(Yaml, BadDocumentsAreRefusedWithTheirPlace) {
  for (const char* text :
       {"a: [", "x: 1\na: b: c", "x: 1\n\ty: 1", "? {a: b}\n: c", "a: *unknown"}) {
    const auto parsed = ParseYaml(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().reason(), Reason::kBadRequest);
    EXPECT_NE(parsed.error().message().find("line "), std::string::npos) << text;
  }
  EXPECT_FALSE(ParseYaml(std::string(2000, '['), {}).ok());
  std::string bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n";
  for (char c = 'b'; c < 'k'; ++c) {
    const std::string previous = std::string("*") + static_cast<char>(c - 1);
    bomb += std::string(1, c) + ": &" + c + " [" + previous;
    for (int i = 0; i < 9; ++i) {
      bomb += "," + previous;
    }
    bomb += "]\n";
  }
  EXPECT_NE(ParseYaml(bomb).error().message().find("excessive aliasing"), std::string::npos);
}

TEST(Yaml, SeveralDocuments) {
  const auto parsed = ParseYamlDocuments("---\na: 1\n---\n---\n# nothing\n---\nb: 2\n");
  ASSERT_TRUE(parsed.ok());
  ASSERT_EQ(parsed->size(), 2u);
  EXPECT_EQ(Dump((*parsed)[1]), R"({"b":2})");
}

TEST(Yaml, WhatIsWrittenReadsBack) {
  const Json value = Json::parse(
      R"({"a":"yes","b":"","c":"1","d":["x","- y",{"k":"v: w","l":[1,[2,3]]}],"e":{},"f":[],
          "g":"line\nline2\n","h":" lead","i":"it's","j":null,"k":true,"l":"a #b","m":"x\ty",
          "n":"two\nlines","o":"2020-01-01","p":"*","q":{"r":{"s":"multi\nline\n"}},"t":"end\n\n",
          "u":["multi\nline"],"v":"null","w":"0x10","x":"a:b","y":"=","z":"-x"})");
  const auto parsed = ParseYaml(ToYaml(value));
  ASSERT_TRUE(parsed.ok()) << parsed.error().message() << "\n" << ToYaml(value);
  EXPECT_EQ(*parsed, value) << ToYaml(value);
  EXPECT_EQ(ToYaml(Json::parse(R"({"a":[{"b":1,"c":"x"}],"d":{"e":"true"}})")),
            "a:\n- b: 1\n  c: x\nd:\n  e: \"true\"\n");
}

}  // namespace
}  // namespace sublet::kube
