#include "syncer/names.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sublet::syncer {
namespace {

using kube::Json;

const Tenant kTenant{"tenant-a", "sublet-tenant-a"};

TEST(Names, GoldenVectors) {
  EXPECT_EQ(HostName(kTenant, "web-0", "default"), "web-0-x-default-x-tenant-a");
  EXPECT_EQ(HostName(kTenant, "a-very-long-statefulset-name-for-training-0", "team-research"),
            "a-very-long-statefulset-name-for-training-0-x-team-r-387308b841");
  EXPECT_EQ(HostNameCluster(kTenant, "high-priority"),
            "sublet-high-priority-x-sublet-tenant-a-x-tenant-a");
  EXPECT_EQ(ShortHostName(kTenant, "claim", "default"), "v632uac7dkyjhh");
  EXPECT_EQ(ShortHostName(kTenant, "web-0", "default"), "v3exzii02hn259");
  EXPECT_EQ(HostLabelKey(kTenant, "release"), "sublet.dev/label-tenant-a-x-a4d451ec23");
  EXPECT_EQ(NamespaceLabelKey(kTenant, "team"), "sublet.dev/ns-label-tenant-a-x-ca8b22d0db");
}

TEST(Names, ShortenOnlyPast63AndNeverEndAPartInADot) {
  EXPECT_EQ(SafeName(std::string(63, 'a')), std::string(63, 'a'));
  EXPECT_EQ(SafeName(std::string(64, 'a')).size(), 63u);
  const std::string dotted = SafeName(std::string(51, 'a') + "." + std::string(20, 'b'));
  EXPECT_EQ(dotted.find(".-"), std::string::npos);
  EXPECT_EQ(dotted.size(), 62u);
}

TEST(Names, UserLabelsStayAndMarkersOfATenantNeverArriveAsMarkers) {
  const Json pod = {
      {"metadata",
       {{"name", "a"},
        {"namespace", "default"},
        {"uid", "u1"},
        {"labels",
         {{"app", "web"},
          {"release", "r1"},
          {"sublet.dev/managed-by", "other"},
          {"sidecar.istio.io/inject", "true"},
          {"app.kubernetes.io/name", "web"}}},
        {"annotations",
         {{"note", "x"}, {"cdi.k8s.io/gpu", "all"}, {"sublet.dev/object-name", "forged"}}}}}};
  const Json labels = HostLabels(kTenant, pod, {});
  EXPECT_EQ(labels["app"], "web");
  EXPECT_EQ(labels["app.kubernetes.io/name"], "web");
  EXPECT_EQ(labels["sublet.dev/label-tenant-a-x-a4d451ec23"], "r1");
  EXPECT_EQ(labels["sublet.dev/managed-by"], "tenant-a");
  EXPECT_EQ(labels["sublet.dev/namespace"], "default");
  EXPECT_FALSE(labels.contains("sidecar.istio.io/inject"));
  EXPECT_FALSE(labels.contains("release"));

  const Json annotations =
      HostAnnotations(kTenant, pod, "/v1, Kind=Pod", "a-x-default-x-tenant-a", {});
  EXPECT_EQ(annotations["note"], "x");
  EXPECT_EQ(annotations["sublet.dev/object-name"], "a");
  EXPECT_EQ(annotations["sublet.dev/object-kind"], "/v1, Kind=Pod");
  EXPECT_FALSE(annotations.contains("cdi.k8s.io/gpu"));
}

TEST(Names, ConfiguredKeysTravelToo) {
  EXPECT_FALSE(MayTravel("example.com/team", {}));
  EXPECT_TRUE(MayTravel("example.com/team", {"example.com/"}));
  EXPECT_TRUE(MayTravel("example.com/team", {"example.com/team"}));
  EXPECT_FALSE(MayTravel("example.com/team2", {"example.com/team"}));
}

// Applies a merge patch of HostAdditionsPatch and says what stands on the host afterwards.
Json Shown(Json object, const Json& host) {
  const Json patch = HostAdditionsPatch(object, host, {});
  if (!patch.is_null()) {
    object.merge_patch(patch);
  }
  return object;
}

TEST(Names, WhatTheHostAddsIsShownAndStaysTheHosts) {
  Json object = {
      {"metadata", {{"name", "a"}, {"namespace", "default"}, {"labels", {{"app", "web"}}}}}};
  Json host = {{"metadata",
                {{"labels", HostLabels(kTenant, object, {})},
                 {"annotations", HostAnnotations(kTenant, object, "/v1, Kind=Pod", "h", {})}}}};
  EXPECT_TRUE(HostAdditionsPatch(object, host, {}).is_null());
  host["metadata"]["labels"]["injected"] = "yes";
  host["metadata"]["labels"]["istio.io/rev"] = "x";
  host["metadata"]["labels"]["topology.kubernetes.io/zone"] = "z1";
  object = Shown(object, host);
  EXPECT_EQ(object["metadata"]["labels"],
            Json({{"app", "web"}, {"injected", "yes"}, {"topology.kubernetes.io/zone", "z1"}}));
  EXPECT_TRUE(HostAdditionsPatch(object, host, {}).is_null());
  // It is not carried back as if the tenant had said it.
  EXPECT_FALSE(HostLabels(kTenant, object, {}).contains("injected"));
  EXPECT_EQ(
      HostAnnotations(kTenant, object, "/v1, Kind=Pod", "h", {})[std::string(kAnnotationLabelKeys)],
      "app");
  host["metadata"]["labels"]["injected"] = "no";
  object = Shown(object, host);
  EXPECT_EQ(object["metadata"]["labels"]["injected"], "no");
  host["metadata"]["labels"].erase("injected");
  object = Shown(object, host);
  EXPECT_FALSE(object["metadata"]["labels"].contains("injected"));
}

TEST(Names, ALabelThatTheTenantSetsIsTheTenants) {
  Json object = {{"metadata", {{"name", "a"}, {"namespace", "default"}}}};
  const Json host = {{"metadata", {{"labels", {{"mode", "host"}}}}}};
  object = Shown(object, host);
  EXPECT_EQ(object["metadata"]["labels"]["mode"], "host");
  object["metadata"]["labels"]["mode"] = "mine";
  object = Shown(object, host);
  EXPECT_EQ(object["metadata"]["labels"]["mode"], "mine");
  EXPECT_EQ(HostLabels(kTenant, object, {})["mode"], "mine");
}

TEST(Names, SelectorsAreTranslatedAndBoundToTheTenant) {
  const Json selector = {{"matchLabels", {{"release", "x"}, {"app", "web"}}},
                         {"matchExpressions", {{{"key", "release"}, {"operator", "Exists"}}}}};
  const Json host = HostLabelSelector(kTenant, selector, "team");
  EXPECT_EQ(host["matchLabels"]["sublet.dev/label-tenant-a-x-a4d451ec23"], "x");
  EXPECT_EQ(host["matchLabels"]["app"], "web");
  EXPECT_EQ(host["matchLabels"]["sublet.dev/managed-by"], "tenant-a");
  EXPECT_EQ(host["matchLabels"]["sublet.dev/namespace"], "team");
  EXPECT_EQ(host["matchExpressions"][0]["key"], "sublet.dev/label-tenant-a-x-a4d451ec23");
}

}  // namespace
}  // namespace sublet::syncer
