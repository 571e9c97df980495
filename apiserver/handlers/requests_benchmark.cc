// What one request costs inside the handlers, over a real store and without a network: processor
// time of all threads per request, with 16 requests under way as 16 connections have them.
#include <benchmark/benchmark.h>

#include <condition_variable>
#include <mutex>

#include "apiserver/handlers/testing/api_fixture.h"

namespace sublet::apiserver::testing {
namespace {

constexpr int kUnderWay = 16;

class Slots {
 public:
  void Take() {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [&] { return taken_ < kUnderWay; });
    ++taken_;
  }
  void Free() {
    const std::lock_guard lock(mutex_);
    --taken_;
    freed_.notify_all();
  }
  void Drain() {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [&] { return taken_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable freed_;
  int taken_ = 0;
};

class SlotResponder final : public Responder {
 public:
  SlotResponder(Slots* slots, int expected) : slots_(slots), expected_(expected) {}
  ~SlotResponder() override { slots_->Free(); }
  void Send(Response response) override {
    SUBLET_CHECK(response.code == expected_);
    benchmark::DoNotOptimize(response.body.size());
  }
  void SendStream(Response, std::unique_ptr<ByteStream>) override {}
  void SendUpgrade(Response, Upgrade) override {}

 private:
  Slots* slots_;
  int expected_;
};

class Bench : public ApiFixture {
 public:
  Bench() { MakeNamespace("bench"); }
  void TestBody() override {}
  void Start(std::string_view method, std::string_view path, std::string body, int expected,
             std::string_view type = "application/json") {
    slots_.Take();
    handler_->Handle(
        MakeRequest(method, path, std::move(body),
                    {{"content-type", std::string(type)}, {"accept", "application/json"}}),
        std::make_unique<SlotResponder>(&slots_, expected));
  }
  void Drain() { slots_.Drain(); }
  using ApiFixture::Do;
  using ApiFixture::Post;

 private:
  Slots slots_;
};

constexpr std::string_view kConfigMaps = "/api/v1/namespaces/bench/configmaps";

std::string ConfigMapText(const std::string& name) {
  return R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":")" + name +
         R"(","labels":{"app":"bench"}},"data":{"key":")" + std::string(200, 'x') + R"("}})";
}

std::string PodText(const std::string& name) {
  return R"({"apiVersion":"v1","kind":"Pod","metadata":{"name":")" + name +
         R"(","labels":{"app":"bench","tier":"web"}},"spec":{"containers":[{"name":"c",)"
         R"("image":"registry.example/app:v1","args":["--port=80","--verbose"],"env":[)"
         R"({"name":"MODE","value":"fast"},{"name":"NODE","valueFrom":{"fieldRef":{"fieldPath":)"
         R"("spec.nodeName"}}}],"ports":[{"containerPort":80}],"resources":{"requests":)"
         R"({"cpu":"100m","memory":"64Mi"},"limits":{"memory":"128Mi"}},"volumeMounts":[{"name":)"
         R"("config","mountPath":"/etc/app"}]}],"volumes":[{"name":"config","configMap":{"name":)"
         R"("app"}}],"automountServiceAccountToken":false}})";
}

template <typename Step>
void Measure(benchmark::State& state, Bench& bench, const Step& step) {
  int i = 0;
  for (auto _ : state) {
    step(i++);
  }
  bench.Drain();
  state.SetItemsProcessed(i);
}

void CreateConfigMap(benchmark::State& state) {
  Bench bench;
  Measure(state, bench, [&](int i) {
    bench.Start("POST", kConfigMaps, ConfigMapText("m" + std::to_string(i)), 201);
  });
}

void CreatePod(benchmark::State& state) {
  Bench bench;
  bench.Post("/api/v1/namespaces/bench/serviceaccounts", {{"metadata", {{"name", "default"}}}});
  Measure(state, bench, [&](int i) {
    bench.Start("POST", "/api/v1/namespaces/bench/pods", PodText("p" + std::to_string(i)), 201);
  });
}

void GetConfigMap(benchmark::State& state) {
  Bench bench;
  bench.Do("POST", kConfigMaps, ConfigMapText("m"));
  const std::string path = std::string(kConfigMaps) + "/m";
  Measure(state, bench, [&](int) { bench.Start("GET", path, "", 200); });
}

void ListConfigMaps(benchmark::State& state) {
  Bench bench;
  for (int i = 0; i < 1000; ++i) {
    bench.Start("POST", kConfigMaps, ConfigMapText("m" + std::to_string(i)), 201);
  }
  bench.Drain();
  Measure(state, bench, [&](int) { bench.Start("GET", kConfigMaps, "", 200); });
}

constexpr int kObjects = 64;  // more than are under way, so that no two requests meet

void MergePatchConfigMap(benchmark::State& state) {
  Bench bench;
  for (int i = 0; i < kObjects; ++i) {
    bench.Do("POST", kConfigMaps, ConfigMapText("m" + std::to_string(i)));
  }
  Measure(state, bench, [&](int i) {
    bench.Start("PATCH", std::string(kConfigMaps) + "/m" + std::to_string(i % kObjects),
                R"({"data":{"key":")" + std::to_string(i) + R"("}})", 200,
                "application/merge-patch+json");
  });
}

void ApplyConfigMap(benchmark::State& state) {
  Bench bench;
  for (int i = 0; i < kObjects; ++i) {
    bench.Do("POST", kConfigMaps, ConfigMapText("m" + std::to_string(i)));
  }
  Measure(state, bench, [&](int i) {
    const std::string name = "m" + std::to_string(i % kObjects);
    bench.Start("PATCH", std::string(kConfigMaps) + "/" + name + "?fieldManager=bench&force=true",
                R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":")" + name +
                    R"("},"data":{"key":")" + std::to_string(i) + R"("}})",
                200, "application/apply-patch+yaml");
  });
}

BENCHMARK(CreateConfigMap)->MeasureProcessCPUTime()->UseRealTime();
BENCHMARK(CreatePod)->MeasureProcessCPUTime()->UseRealTime();
BENCHMARK(GetConfigMap)->MeasureProcessCPUTime()->UseRealTime();
BENCHMARK(ListConfigMaps)->MeasureProcessCPUTime()->UseRealTime();
BENCHMARK(MergePatchConfigMap)->MeasureProcessCPUTime()->UseRealTime();
BENCHMARK(ApplyConfigMap)->MeasureProcessCPUTime()->UseRealTime();

}  // namespace
}  // namespace sublet::apiserver::testing

BENCHMARK_MAIN();
