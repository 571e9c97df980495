// Objects and case files from outside: no input may crash the converters or the runner.
#include <nlohmann/json.hpp>

#include "scheduler/cases.h"
#include "scheduler/convert.h"
#include "scheduler/engine.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace sublet::scheduler;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto object = sublet::kube::ParseJson(text);
  if (!object.ok()) {
    return 0;
  }
  Engine engine({*NamedProfile("kai-0.17"), *NamedProfile("default")});
  engine.Apply(NodeFromJson(*object));
  engine.Apply(QueueFromJson(*object));
  engine.Apply(PodGroupFromJson(*object, nullptr));
  engine.Apply(TopologyFromJson(*object));
  engine.Apply(ClaimFromJson(*object));
  engine.Apply(SliceFromJson(*object));
  engine.Apply(BudgetFromJson(*object));
  engine.Apply(PodFromJson(*object));
  engine.Run(1'800'000'000'000);
  return 0;
}
