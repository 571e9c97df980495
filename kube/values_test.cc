// Quantities, selectors, names, times: small values against what the reference library printed
// (testdata/values.txt: one case per line, written by running it).
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kube/field_error.h"
#include "kube/field_selector.h"
#include "kube/int_or_string.h"
#include "kube/json_lists.h"
#include "kube/label_selector.h"
#include "kube/name_generator.h"
#include "kube/object.h"
#include "kube/quantity.h"
#include "kube/status_json.h"
#include "kube/timestamp.h"
#include "kube/validation_names.h"

namespace sublet::kube {
namespace {

std::string Text(const Json& json) { return json.get<std::string>(); }

void CheckQuantity(const std::string& what, const Json& c) {
  const auto parsed = Quantity::Parse(Text(c[0]));
  if (what == "quantity_error") {
    ASSERT_FALSE(parsed.ok()) << c;
    EXPECT_EQ(parsed.error().message(), Text(c[1])) << c;
  } else if (what == "quantity_sum") {
    const auto other = *Quantity::Parse(Text(c[1]));
    EXPECT_EQ((*parsed + other).Text(), Text(c[2])) << c;
    EXPECT_EQ((*parsed - other).Text(), Text(c[3])) << c;
  } else {
    ASSERT_TRUE(parsed.ok()) << c;
    EXPECT_EQ(parsed->Text(), Text(c[1])) << c;
    if (c.size() > 2) {  // left out where the reference overflows; we saturate
      EXPECT_EQ(parsed->Value(), c[2].get<std::int64_t>()) << c;
      EXPECT_EQ(parsed->MilliValue(), c[3].get<std::int64_t>()) << c;
    }
  }
}

template <typename T>
void CheckSelector(const Result<T>& parsed, bool is_error, const Json& c) {
  ASSERT_EQ(parsed.ok(), !is_error) << c;
  EXPECT_EQ(is_error ? parsed.error().message() : parsed->Text(), Text(c[1])) << c;
}

TEST(Values, AgreeWithTheReferenceLibrary) {
  const char* source = std::getenv("SUBLET_SOURCE_DIR");
  std::ifstream file(std::string(source != nullptr ? source : ".") + "/kube/testdata/values.txt");
  ASSERT_TRUE(file.good());
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const std::string what = line.substr(0, line.find(' '));
    const Json c = Json::parse(line.substr(what.size()));
    if (what.starts_with("quantity")) {
      CheckQuantity(what, c);
    } else if (what.starts_with("labels")) {
      CheckSelector(LabelSelector::Parse(Text(c[0])), what == "labels_error", c);
    } else {
      CheckSelector(FieldSelector::Parse(Text(c[0])), what == "fields_error", c);
    }
  }
  EXPECT_GT(cases, 150);
}

TEST(Quantity, ComparesAmountsNotNotations) {
  EXPECT_EQ(*Quantity::Parse("1"), *Quantity::Parse("1000m"));
  EXPECT_LT(*Quantity::Parse("1G"), *Quantity::Parse("1Gi"));
  EXPECT_TRUE(Quantity::FromMilli(1500).Text() == "1500m");
  EXPECT_FALSE(Quantity::FromMilli(1500).IsInteger());
  EXPECT_EQ(Quantity::FromInt(kGiB, Quantity::Format::kBinarySi).Text(), "1Gi");
  EXPECT_EQ(Quantity::Parse("1e400")->Value(), INT64_MAX);
  EXPECT_EQ(Quantity::Parse("-1e400")->Value(), INT64_MIN);
}

TEST(LabelSelector, MatchesAsQueriesExpect) {
  const Json labels = {{"a", "1"}, {"b", "x"}};
  const struct {
    const char* selector;
    bool matches;
  } cases[] = {
      {"", true},      {"a=1", true},        {"a=2", false},        {"c!=1", true},
      {"a!=1", false}, {"a in (1,2)", true}, {"c notin (1)", true}, {"a notin (1)", false},
      {"a", true},     {"!a", false},        {"!c", true},          {"a>0", true},
      {"a<1", false},  {"b>0", false},       {"a=1,b=x", true},     {"a=1,b=y", false},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(LabelSelector::Parse(c.selector)->Matches(&labels), c.matches) << c.selector;
    EXPECT_EQ(
        LabelSelector::Parse(c.selector)
            ->Matches(std::vector<std::pair<std::string, std::string>>{{"a", "1"}, {"b", "x"}}),
        c.matches)
        << c.selector;
  }
}

TEST(LabelSelector, ObjectsAbsentMatchNothingEmptyMatchAll) {
  const Json labels = {{"a", "1"}};
  EXPECT_FALSE(LabelSelector::FromJson(nullptr)->Matches(&labels));
  const Json empty = Json::object();
  EXPECT_TRUE(LabelSelector::FromJson(&empty)->Matches(nullptr));
  const Json both = Json::parse(
      R"({"matchLabels":{"a":"1"},"matchExpressions":[{"key":"b","operator":"NotIn","values":["2","1"]},
          {"key":"c","operator":"DoesNotExist"}]})");
  EXPECT_TRUE(LabelSelector::FromJson(&both)->Matches(&labels));
  EXPECT_EQ(FormatLabelSelector(&both), "a=1,b notin (1,2),!c");
  EXPECT_EQ(FormatLabelSelector(&empty), "<none>");
  const Json bad = Json::parse(R"({"matchExpressions":[{"key":"b","operator":"Like"}]})");
  EXPECT_EQ(LabelSelector::FromJson(&bad).error().message(),
            "\"Like\" is not a valid label selector operator");
  EXPECT_EQ(FormatLabelSelector(&bad), "<error>");
}

TEST(FieldSelector, Matches) {
  const auto selector = *FieldSelector::Parse("metadata.name=a,status.phase!=Failed");
  const auto lookup = [](std::string_view field) -> std::string_view {
    return field == "metadata.name" ? "a" : "Running";
  };
  EXPECT_TRUE(selector.Matches(lookup));
  EXPECT_EQ(*selector.RequiredValue("metadata.name"), "a");
  EXPECT_EQ(selector.RequiredValue("status.phase"), nullptr);
  EXPECT_FALSE(FieldSelector::Parse("status.phase!=Running")->Matches(lookup));
}

TEST(Timestamp, ReadsAndWritesRfc3339) {
  const auto time = *ParseTime("2026-01-02T03:04:05.123456789+02:00");
  EXPECT_EQ(FormatTime(time), "2026-01-02T01:04:05Z");
  EXPECT_EQ(FormatMicroTime(time), "2026-01-02T01:04:05.123456Z");
  EXPECT_EQ(FormatTime(*ParseTime("1969-12-31T23:59:59Z")), "1969-12-31T23:59:59Z");
  for (const char* bad : {"", "2026-01-02", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z",
                          "2026-01-02T03:04:05", "2026-01-02T24:00:00Z", "2026-01-02T03:04:05Zx"}) {
    EXPECT_FALSE(ParseTime(bad).ok()) << bad;
  }
}

TEST(Timestamp, DurationsReadAndWriteAsGoDoes) {
  using std::chrono::nanoseconds;
  const struct {
    const char* text;
    std::int64_t nanos;
    const char* shown;
  } cases[] = {{"0", 0, "0s"},
               {"1h", 3'600'000'000'000, "1h0m0s"},
               {"90m", 5'400'000'000'000, "1h30m0s"},
               {"1.5s", 1'500'000'000, "1.5s"},
               {"300ms", 300'000'000, "300ms"},
               {"-2m3s", -123'000'000'000, "-2m3s"},
               {"1500us", 1'500'000, "1.5ms"},
               {"7ns", 7, "7ns"}};
  for (const auto& c : cases) {
    EXPECT_EQ(ParseDuration(c.text)->count(), c.nanos) << c.text;
    EXPECT_EQ(FormatDuration(nanoseconds(c.nanos)), c.shown) << c.text;
  }
  for (const auto& [text, nanos] : std::vector<std::pair<const char*, std::int64_t>>{
           {"1.5h", 5'400'000'000'000},
           {"+.5s", 500'000'000},
           {"1.s", 1'000'000'000},
           {"-0.1s", -100'000'000},
           {"0.3s0.7ns0.7ns", 300'000'000},
           {"3\xc2\xb5s", 3'000},
           {"3\xce\xbcs", 3'000},
           {"1h1us", 3'600'000'001'000},
           {"0.9223372036854775807h", 3'320'413'933'267},
           {"0.100000000000000000000h", 360'000'000'000},
           {"0.830103483285477580700h", 2'988'372'539'827},
           {"9223372036854775807ns", INT64_MAX},
           {"-9223372036854775808ns", INT64_MIN},
           {"-9223372036854775.808us", INT64_MIN},
           {"-0", 0}}) {
    ASSERT_TRUE(ParseDuration(text).ok()) << text;
    EXPECT_EQ(ParseDuration(text)->count(), nanos) << text;
  }
  for (const char* bad : {"-",
                          "+",
                          ".",
                          "s",
                          ".s",
                          "-.s",
                          "+-1s",
                          "1e3s",
                          "0x10s",
                          " 1s",
                          "1s ",
                          "1S",
                          "1d",
                          "1_0s",
                          "1.2.3s",
                          "3 s",
                          "inf",
                          "nan",
                          "00",
                          "9223372036854775808ns",
                          "9223372036854775.808us",
                          "-9223372036854775809ns",
                          "9223372036854ms775us808ns",
                          "2562048h",
                          "1e300h",
                          "18446744073709551616ns",
                          "9000000000000000000ns9000000000000000000ns",
                          "2562047h60m"}) {
    EXPECT_FALSE(ParseDuration(bad).ok()) << bad;
  }
  EXPECT_EQ(ParseDuration("5").error().message(), "time: missing unit in duration \"5\"");
  EXPECT_EQ(ParseDuration("5x").error().message(), "time: unknown unit \"x\" in duration \"5x\"");
  EXPECT_EQ(ParseDuration("").error().message(), "time: invalid duration \"\"");
}

TEST(Timestamp, AgesReadAsKubectlShowsThem) {
  using std::chrono::seconds;
  const struct {
    std::int64_t seconds;
    const char* text;
  } cases[] = {{-2, "<invalid>"}, {-1, "0s"},          {0, "0s"},        {119, "119s"},
               {120, "2m"},       {125, "2m5s"},       {599, "9m59s"},   {600, "10m"},
               {10799, "179m"},   {10800, "3h"},       {11100, "3h5m"},  {28800, "8h"},
               {172799, "47h"},   {172800, "2d"},      {180000, "2d2h"}, {691200, "8d"},
               {63072000, "2y"},  {64800000, "2y20d"}, {252288000, "8y"}};
  for (const auto& c : cases) {
    EXPECT_EQ(HumanDuration(seconds(c.seconds)), c.text) << c.seconds;
  }
  EXPECT_EQ(ShortHumanDuration(seconds(125)), "2m");
  EXPECT_EQ(HumanAge("", WallTime()), "<unknown>");
  EXPECT_EQ(HumanAge("2026-01-01T00:00:00Z", *ParseTime("2026-01-01T00:05:00Z")), "5m");
}

TEST(NameGenerator, KeepsWithinADnsLabel) {
  const std::string name = GenerateName(std::string(80, 'a'));
  EXPECT_EQ(name.size(), 63u);
  EXPECT_TRUE(IsDns1123Label(name).empty());
  EXPECT_NE(GenerateName("x-"), GenerateName("x-"));
}

TEST(IntOrString, ScalesPercentages) {
  const auto scaled = [](const Json& value, bool up) {
    return *IntOrString::FromJson(&value)->Scaled(7, up);
  };
  EXPECT_EQ(scaled("25%", true), 2);
  EXPECT_EQ(scaled("25%", false), 1);
  EXPECT_EQ(scaled(3, false), 3);
  const Json bad = "5";
  EXPECT_FALSE(IntOrString::FromJson(&bad)->Scaled(7, true).ok());
  const Json none;
  EXPECT_FALSE(IntOrString::FromJson(&none));
}

TEST(StatusJson, RoundTrips) {
  for (const Status& status :
       {NotFound({"apps", "deployments"}, "x"), Unauthorized(), TooManyRequests("busy", 3),
        Invalid("", "Pod", "p", {{"FieldValueRequired", "Required value", "spec.a"}})}) {
    const Json json = StatusToJson(status);
    const Status again = StatusFromBody(Dump(json), 0);
    EXPECT_EQ(again.reason(), status.reason());
    EXPECT_EQ(again.code(), status.code());
    EXPECT_EQ(again.message(), status.message());
    EXPECT_EQ(again.details(), status.details());
    EXPECT_EQ(again.has_details(), status.has_details());
  }
  EXPECT_TRUE(StatusFromBody("404 page not found", 404).Is(Reason::kNotFound));
}

TEST(Object, OwnersFinalizersAndConditions) {
  Json object = Json::parse(R"({"apiVersion":"apps/v1","kind":"ReplicaSet",
      "metadata":{"name":"a","namespace":"n","uid":"u1","generation":2}})");
  EXPECT_EQ(KindOf(object), (GroupVersionKind{"apps", "v1", "ReplicaSet"}));
  EXPECT_EQ(KeyOf(object).Text(), "n/a");
  Json pod = Json::object();
  SetOwner(&pod, ControllerReference(object));
  EXPECT_EQ(ControllerOf(pod)->uid, "u1");
  EXPECT_TRUE(RemoveOwner(&pod, "u1"));
  EXPECT_FALSE(RemoveOwner(&pod, "u1"));
  EXPECT_TRUE(AddFinalizer(&pod, "x/y"));
  EXPECT_FALSE(AddFinalizer(&pod, "x/y"));
  EXPECT_TRUE(RemoveFinalizer(&pod, "x/y"));
  EXPECT_EQ(Find(pod, {"metadata", "finalizers"}), nullptr);
  SetLabel(&pod, "k", "v");
  EXPECT_EQ(LabelOf(pod, "k"), "v");
  RemoveLabel(&pod, "k");
  EXPECT_EQ(LabelsOf(pod), nullptr);
  EXPECT_TRUE(SetCondition(&pod, {"Ready", "True", "R", "m"}, "t1"));
  EXPECT_FALSE(SetCondition(&pod, {"Ready", "True", "R", "m"}, "t2"));
  EXPECT_TRUE(SetCondition(&pod, {"Ready", "False", "R", ""}, "t3"));
  EXPECT_EQ(FindString(*FindCondition(pod, "Ready"), {"lastTransitionTime"}), "t3");
  EXPECT_FALSE(IsConditionTrue(pod, "Ready"));
}

TEST(ValidationNames, SentencesAreKubernetes) {
  EXPECT_TRUE(IsDns1123Subdomain("a.b-c.d").empty());
  EXPECT_EQ(IsDns1123Label("a.b"), Problems{"must not contain dots"});
  EXPECT_EQ(
      IsDns1123Subdomain("A")[0],
      "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' "
      "or '.', and must start and end with an alphanumeric character (e.g. 'example.com', "
      "regex used for validation is "
      "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')");
  EXPECT_EQ(IsDns1035Label("1a").size(), 1u);
  EXPECT_EQ(IsPathSegmentName("a/b%"), (Problems{"may not contain '/'", "may not contain '%'"}));
  EXPECT_EQ(IsPortName("12345"), Problems{"must contain at least one letter (a-z)"});
  EXPECT_EQ(IsPortNumber(0), Problems{"must be between 1 and 65535, inclusive"});
  EXPECT_TRUE(IsPercent("25%").empty());
  EXPECT_FALSE(IsPercent("%").empty());
  EXPECT_EQ(IsConfigMapKey("..").size(), 1u);
  EXPECT_TRUE(IsIpAddress("fd00::1").empty());
  EXPECT_FALSE(IsIpAddress("10.0.0.256").empty());
  EXPECT_TRUE(IsCidr("10.0.0.0/8").empty());
  EXPECT_FALSE(IsCidr("10.0.0.0/33").empty());
  EXPECT_TRUE(IsWildcardDns1123Subdomain("*.a.b").empty());
}

TEST(FieldError, TextsAreKubernetes) {
  FieldErrors errors;
  const FieldPath spec("spec");
  const FieldPath containers = spec.Child("containers");
  const FieldPath first = containers.Index(0);
  errors.Required(first.Child("name"));
  errors.Invalid(spec.Child("replicas"), -1, "must be greater than or equal to 0");
  errors.NotSupported(spec.Child("type"), "x", {"A", "B"});
  errors.Invalid(FieldPath("metadata").Child("labels").Key("k"), Json::array({"a"}), "bad");
  EXPECT_EQ(errors.Aggregate(),
            "[spec.containers[0].name: Required value, spec.replicas: Invalid value: -1: must be "
            "greater than or equal to 0, spec.type: Unsupported value: \"x\": supported values: "
            "\"A\", \"B\", metadata.labels[k]: Invalid value: [\"a\"]: bad]");
}

TEST(JsonLists, AnswerForWhatIsAbsentOrOfAnotherType) {
  const Json object = {{"list", {"a", 1, "b"}}, {"text", "x"}};
  EXPECT_EQ(ArrayAt(object, {"list"}).size(), 3U);
  EXPECT_TRUE(ArrayAt(object, {"text"}).empty());
  EXPECT_TRUE(ArrayAt(object, {"none"}).empty());
  EXPECT_EQ(TextsOf(Find(object, {"list"})), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(TextsOf(Find(object, {"text"})).empty());
  EXPECT_TRUE(TextsOf(nullptr).empty());
  EXPECT_EQ(NumberOf("-7"), -7);
  EXPECT_EQ(NumberOf("7 "), std::nullopt);
  EXPECT_EQ(NumberOf(""), std::nullopt);
}

}  // namespace
}  // namespace sublet::kube
