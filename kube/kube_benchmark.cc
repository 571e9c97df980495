// The steps of a request that work on values: parse, normalise, compare, track, encode. Build the
// release preset; run with --benchmark_min_time=0.2.
#include <benchmark/benchmark.h>

#include <nlohmann/json.hpp>

#include "kube/managed_fields.h"
#include "kube/protobuf.h"
#include "kube/strategic_merge_patch.h"
#include "kube/typed.h"

namespace sublet::kube {
namespace {

// A pod of about 4 KB.
std::string PodText() {
  Json pod =
      Json::parse(R"({"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","namespace":"n",
    "labels":{"app":"web","tier":"front"},"annotations":{"a/b":"some text that is a little longer"}},
    "spec":{"containers":[],"volumes":[{"name":"data","emptyDir":{}},{"name":"cfg","configMap":{"name":"c"}}],
    "tolerations":[{"key":"a","operator":"Exists"}],"nodeSelector":{"x":"y"}}})");
  for (int i = 0; i < 4; ++i) {
    Json container = Json::parse(R"({"image":"registry.example.com/team/app:v1.2.3","env":[],
      "ports":[{"containerPort":80,"name":"http"},{"containerPort":9090,"name":"metrics"}],
      "resources":{"limits":{"cpu":"500m","memory":"512Mi"},"requests":{"cpu":"100m","memory":"128Mi"}},
      "volumeMounts":[{"name":"data","mountPath":"/data"},{"name":"cfg","mountPath":"/etc/cfg"}],
      "livenessProbe":{"httpGet":{"path":"/healthz","port":80},"periodSeconds":10}})");
    container["name"] = "c" + std::to_string(i);
    for (int j = 0; j < 5; ++j) {
      container["env"].push_back({{"name", "VAR_" + std::to_string(j)}, {"value", "value"}});
    }
    pod["spec"]["containers"].push_back(std::move(container));
  }
  return Dump(pod);
}

const schema::Type kPod = schema::FindType("", "v1", "Pod");

FieldManagerContext PodContext() {
  FieldManagerContext context;
  context.gvk = {"", "v1", "Pod"};
  context.type = kPod;
  context.has_status = true;
  return context;
}

void BM_Parse(benchmark::State& state) {
  const std::string text = PodText();
  for (auto _ : state) {
    benchmark::DoNotOptimize(ParseJson(text));
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}
BENCHMARK(BM_Parse);

void BM_Dump(benchmark::State& state) {
  const Json pod = *ParseJson(PodText());
  for (auto _ : state) {
    benchmark::DoNotOptimize(Dump(pod));
  }
}
BENCHMARK(BM_Dump);

void BM_Copy(benchmark::State& state) {
  const Json pod = *ParseJson(PodText());
  for (auto _ : state) {
    Json copy = pod;
    benchmark::DoNotOptimize(copy);
  }
}
BENCHMARK(BM_Copy);

void BM_Normalize(benchmark::State& state) {
  Json pod = *ParseJson(PodText());
  (void)NormalizeTyped(kPod, &pod).ok();
  for (auto _ : state) {
    benchmark::DoNotOptimize(NormalizeTyped(kPod, &pod).ok());
  }
}
BENCHMARK(BM_Normalize);

void BM_TrackCreate(benchmark::State& state) {
  const Json pod = *ParseJson(PodText());
  for (auto _ : state) {
    state.PauseTiming();
    Json object = pod;
    state.ResumeTiming();
    TrackUpdate(PodContext(), nullptr, "kubectl", &object);
    benchmark::DoNotOptimize(object);
  }
}
BENCHMARK(BM_TrackCreate);

void BM_TrackUpdate(benchmark::State& state) {
  Json live = *ParseJson(PodText());
  TrackUpdate(PodContext(), nullptr, "kubectl", &live);
  Json changed = live;
  changed["spec"]["containers"][1]["image"] = "other";
  for (auto _ : state) {
    state.PauseTiming();
    Json object = changed;
    state.ResumeTiming();
    TrackUpdate(PodContext(), &live, "controller", &object);
    benchmark::DoNotOptimize(object);
  }
}
BENCHMARK(BM_TrackUpdate);

void BM_Apply(benchmark::State& state) {
  const Json config = *ParseJson(PodText());
  const Json live = *ApplyObject(PodContext(), nullptr, config, "helm", false);
  for (auto _ : state) {
    benchmark::DoNotOptimize(ApplyObject(PodContext(), &live, config, "helm", false));
  }
}
BENCHMARK(BM_Apply);

void BM_StrategicMerge(benchmark::State& state) {
  const Json pod = *ParseJson(PodText());
  const Json patch = Json::parse(R"({"spec":{"containers":[{"name":"c1","image":"x"}]}})");
  for (auto _ : state) {
    state.PauseTiming();
    Json object = pod;
    state.ResumeTiming();
    benchmark::DoNotOptimize(ApplyStrategicMergePatch(kPod, patch, &object).ok());
  }
}
BENCHMARK(BM_StrategicMerge);

void BM_ProtobufDecode(benchmark::State& state) {
  Json pod = *ParseJson(PodText());
  const std::string bytes = EncodeProtobuf(kPod, pod);
  for (auto _ : state) {
    benchmark::DoNotOptimize(DecodeProtobuf(bytes));
  }
}
BENCHMARK(BM_ProtobufDecode);

}  // namespace
}  // namespace sublet::kube

BENCHMARK_MAIN();
