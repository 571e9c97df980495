// The built-in kinds against a real API server's code: testdata/kinds.txt holds objects and what
// defaulting, preparation, validation and the table printer made of them, one case a line.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kube/kinds/registry.h"
#include "kube/kinds/scale.h"
#include "kube/kinds/write_path.h"
#include "kube/object.h"
#include "kube/status_json.h"
#include "kube/timestamp.h"
#include "kube/typed.h"

namespace sublet::kube {
namespace {

constexpr char kUid[] = "00000000-0000-4000-8000-000000000000";

// Random names, uids made here and the wording of who made them do not take part.
std::string Replaced(std::string text, std::string_view uid) {
  for (std::size_t at = 0; uid.size() > 8 && (at = text.find(uid, at)) != std::string::npos;) {
    text.replace(at, uid.size(), kUid);
  }
  return text;
}

Json WithoutUid(const Json& object) { return *ParseJson(Replaced(Dump(object), UidOf(object))); }

class Case {
 public:
  explicit Case(const Json& json) : json_(json) {
    const GroupVersionKind gvk = KindOf(json["object"]);
    kind_ = FindBuiltinKind(gvk.group, gvk.version, gvk.kind);
    context_.now = *ParseTime("2026-01-01T00:00:00Z");
    context_.namespace_name = NamespaceOf(json["object"]);
    context_.user = "admin";
    context_.user_uid = "u";
    context_.groups = {"g"};
  }

  void Run() {
    ASSERT_NE(kind_, nullptr) << json_["object"];
    if (json_.contains("now")) {
      return Table();
    }
    Json object = Decoded("object");
    if (json_.contains("defaulted")) {
      // Lists that are empty before they are stored count as absent here.
      Json expected = json_["defaulted"];
      EXPECT_TRUE(NormalizeTyped(kind_->type, &expected).ok());
      EXPECT_TRUE(object == expected)
          << "defaults of " << kind_->gvk.kind << "\n"
          << Json::diff(expected, object) << Json::diff(object, expected);
    }
    std::vector<std::string> warnings;
    Result<void> done;
    if (json_.contains("old")) {
      done = BeforeUpdate(*kind_, context_, json_.value("sub", std::string()), Decoded("old"),
                          &object, &warnings);
    } else {
      done = BeforeCreate(*kind_, context_, &object, &warnings);
    }
    if (json_.contains("status")) {
      ASSERT_FALSE(done.ok()) << "accepted: " << json_["status"]["message"] << json_["object"];
      EXPECT_EQ(Replaced(done.error().message(), UidOf(object)),
                json_["status"]["message"].get<std::string>())
          << json_["object"];
      CompareCauses(done.error());
      return;
    }
    ASSERT_TRUE(done.ok()) << done.error().message() << json_["object"];
    // Decoding what was prepared gives the form in which it is answered.
    ASSERT_TRUE(NormalizeTyped(kind_->type, &object).ok());
    object = WithoutUid(object);
    // Defaults of what preparation made come when it is read again.
    kind_->strategy->Default(&object);
    const Json expected = Decoded("prepared");
    EXPECT_TRUE(object == expected) << "preparation of " << kind_->gvk.kind << "\n"
                                    << Json::diff(expected, object) << Json::diff(object, expected);
    EXPECT_EQ(warnings, json_.value("warnings", std::vector<std::string>())) << json_["object"];
  }

 private:
  // Messages say a thing once, causes as often as it was found.
  void CompareCauses(const Status& status) const {
    if (!json_["status"].contains("causes")) {
      return;
    }
    Json causes = Json::array();
    for (const StatusCause& cause : status.details().causes) {
      causes.push_back(
          {{"reason", cause.reason}, {"message", cause.message}, {"field", cause.field}});
    }
    EXPECT_EQ(causes, json_["status"]["causes"]) << json_["object"];
  }

  Json Decoded(const char* member) const {
    Json object = json_[member];
    EXPECT_TRUE(NormalizeTyped(kind_->type, &object).ok()) << object;
    kind_->strategy->Default(&object);
    return object;
  }

  void Table() {
    const WallTime now = *ParseTime(json_["now"].get<std::string>());
    const Json object = Decoded("object");
    const Json cells = kind_->strategy->Cells(object, now);
    const std::vector<Column> columns = kind_->strategy->Columns();
    ASSERT_EQ(columns.size(), json_["columns"].size()) << json_["object"];
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const Json& column = json_["columns"][i];
      EXPECT_EQ(columns[i].name, column["name"].get<std::string>());
      EXPECT_EQ(columns[i].type, column["type"].get<std::string>()) << columns[i].name;
      EXPECT_EQ(columns[i].format, column["format"].get<std::string>()) << columns[i].name;
      EXPECT_EQ(columns[i].priority, column["priority"].get<int>()) << columns[i].name;
    }
    EXPECT_EQ(cells, json_["cells"]) << json_["object"];
    EXPECT_EQ(kind_->strategy->RowConditions(object), json_.value("conditions", Json()));
  }

  const Json& json_;
  KindPtr kind_;
  WriteContext context_;
};

TEST(Kinds, DoWhatTheReferenceDoes) {
  const char* source = std::getenv("SUBLET_SOURCE_DIR");
  const char* other = std::getenv("SUBLET_KIND_CASES");
  std::ifstream file(other != nullptr ? std::string(other)
                                      : std::string(source != nullptr ? source : ".") +
                                            "/kube/testdata/kinds.txt");
  ASSERT_TRUE(file.good());
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    SCOPED_TRACE(cases + 1);
    const Json json = Json::parse(line);
    Case(json).Run();
  }
  EXPECT_GT(cases, 500);
}

TEST(Kinds, ScaleReadsAndWritesReplicas) {
  const KindPtr kind = FindBuiltinResource("apps", "v1", "deployments");
  Json object = Json::parse(R"({"metadata":{"name":"d","namespace":"n"},"spec":{"replicas":3,
      "selector":{"matchLabels":{"a":"b"}}},"status":{"replicas":2}})");
  Json scale = ToScale(*kind, object);
  EXPECT_EQ(scale["spec"], Json::parse(R"({"replicas":3})"));
  EXPECT_EQ(scale["status"], Json::parse(R"({"replicas":2,"selector":"a=b"})"));
  scale["spec"]["replicas"] = 5;
  ASSERT_TRUE(ApplyScale(*kind, scale, &object).ok());
  EXPECT_EQ(FindInt(object, {"spec", "replicas"}), 5);
  scale["spec"]["replicas"] = -1;
  EXPECT_EQ(ApplyScale(*kind, scale, &object).error().message(),
            "Scale.autoscaling \"d\" is invalid: spec.replicas: Invalid value: -1: must be greater "
            "than or equal to 0");
}

TEST(Kinds, EventsAndAutoscalersHaveOneStoredForm) {
  const KindPtr events = FindBuiltinKind("events.k8s.io", "v1", "Event");
  const Json event = Json::parse(R"({"apiVersion":"events.k8s.io/v1","kind":"Event",
      "metadata":{"name":"e","namespace":"n"},"eventTime":"2026-01-01T00:00:00.000000Z","note":"text",
      "regarding":{"kind":"Pod","name":"p"},"reportingController":"c","reportingInstance":"i",
      "deprecatedSource":{},"deprecatedFirstTimestamp":null,"deprecatedLastTimestamp":null,
      "type":"Normal","reason":"R","action":"A"})");
  Json stored = event;
  events->strategy->ToStorage(&stored);
  EXPECT_EQ(FindString(stored, {"message"}), "text");
  EXPECT_EQ(FindString(stored, {"involvedObject", "name"}), "p");
  EXPECT_EQ(FindString(stored, {"reportingComponent"}), "c");
  events->strategy->FromStorage(&stored);
  EXPECT_EQ(stored, event);

  const KindPtr v1 = FindBuiltinKind("autoscaling", "v1", "HorizontalPodAutoscaler");
  const Json scaler =
      Json::parse(R"({"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler",
      "metadata":{"name":"h","namespace":"n"},"spec":{"maxReplicas":3,"minReplicas":1,
      "scaleTargetRef":{"kind":"Deployment","name":"d"},"targetCPUUtilizationPercentage":50},
      "status":{"currentReplicas":0,"desiredReplicas":0}})");
  Json v2 = scaler;
  v1->strategy->ToStorage(&v2);
  EXPECT_EQ(v2["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 50);
  v1->strategy->FromStorage(&v2);
  EXPECT_EQ(v2, scaler);
}

TEST(Kinds, SelectableFieldsAreFound) {
  const KindPtr pods = FindBuiltinResource("", "v1", "pods");
  const Json pod =
      Json::parse(R"({"spec":{"nodeName":"n1"},"status":{"podIPs":[{"ip":"1.2.3.4"}]}})");
  EXPECT_EQ(pods->strategy->SelectableValue(pod, "spec.nodeName"), "n1");
  EXPECT_EQ(pods->strategy->SelectableValue(pod, "status.podIP"), "1.2.3.4");
  EXPECT_EQ(pods->strategy->SelectableValue(pod, "spec.hostNetwork"), "false");
  EXPECT_EQ(pods->strategy->SelectableFields().size(), 9u);
}

TEST(Kinds, OnlyPodsHaveAGracePeriod) {
  const KindPtr pods = FindBuiltinResource("", "v1", "pods");
  Json pod = Json::parse(R"({"spec":{"nodeName":"n","terminationGracePeriodSeconds":20}})");
  EXPECT_EQ(pods->strategy->GracePeriod(pod, std::nullopt), 20);
  EXPECT_EQ(pods->strategy->GracePeriod(pod, 5), 5);
  EXPECT_EQ(pods->strategy->GracePeriod(pod, -5), 1);
  pod["status"]["phase"] = "Succeeded";
  EXPECT_EQ(pods->strategy->GracePeriod(pod, std::nullopt), 0);
  EXPECT_EQ(FindBuiltinResource("", "v1", "secrets")->strategy->GracePeriod(pod, 5), std::nullopt);
}

}  // namespace
}  // namespace sublet::kube
