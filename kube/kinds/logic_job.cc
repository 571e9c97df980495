#include <nlohmann/json.hpp>

#include "kube/kinds/logic_functions.h"
#include "kube/object.h"

namespace sublet::kube::logic {

void PrepareJobCreate(const WriteContext&, Json* job) {
  Json& spec = EnsureObject(job, "spec");
  if (FindBool(spec, {"manualSelector"})) {
    return;
  }
  // The job's own uid selects its pods, under the old and the new label.
  const std::string uid(UidOf(*job));
  const std::string name(NameOf(*job));
  Json& labels = EnsureObject(&EnsureObject(&EnsureObject(&spec, "template"), "metadata"), "labels");
  const auto add = [&labels](const char* key, const std::string& value) {
    labels.emplace(key, value);
  };
  add("batch.kubernetes.io/controller-uid", uid);
  add("controller-uid", uid);
  add("batch.kubernetes.io/job-name", name);
  add("job-name", name);
  EnsureObject(&EnsureObject(&spec, "selector"), "matchLabels")
      .emplace("batch.kubernetes.io/controller-uid", uid);
}

}  // namespace sublet::kube::logic
