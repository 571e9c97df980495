#include <charconv>
#include <nlohmann/json.hpp>

#include "kube/kinds/default_functions.h"
#include "kube/kinds/logic_functions.h"
#include "kube/object.h"

namespace sublet::kube::logic {
namespace {

std::int64_t TemplateGeneration(const Json& object) {
  const std::string_view text =
      FindString(object, {"metadata", "annotations", defaults::kTemplateGeneration});
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

void SetTemplateGeneration(std::int64_t value, Json* object) {
  EnsureObject(&EnsureObject(object, "metadata"), "annotations")[defaults::kTemplateGeneration] =
      std::to_string(value);
}

}  // namespace

void PrepareDaemonSetCreate(const WriteContext&, Json* object) {
  SetTemplateGeneration(std::max<std::int64_t>(1, TemplateGeneration(*object)), object);
}

void PrepareDaemonSetUpdate(const WriteContext&, const Json& old, Json* object) {
  const Json* now = Find(*object, {"spec", "template"});
  const Json* before = Find(old, {"spec", "template"});
  const bool same = now != nullptr && before != nullptr && *now == *before;
  SetTemplateGeneration(TemplateGeneration(old) + (same ? 0 : 1), object);
}

void PrepareStatefulSetCreate(const WriteContext&, Json* object) {
  EraseMember(Find(*object, {"spec", "updateStrategy", "rollingUpdate"}), "maxUnavailable");
}

void PrepareStatefulSetUpdate(const WriteContext& context, const Json& old, Json* object) {
  if (Find(old, {"spec", "updateStrategy", "rollingUpdate", "maxUnavailable"}) == nullptr) {
    PrepareStatefulSetCreate(context, object);
  }
}

void PrepareJobCreate(const WriteContext&, Json* job) {
  Json& spec = EnsureObject(job, "spec");
  if (FindBool(spec, {"manualSelector"})) {
    return;
  }
  // The job's own uid selects its pods, under the old and the new label.
  const std::string uid(UidOf(*job));
  const std::string name(NameOf(*job));
  Json& labels =
      EnsureObject(&EnsureObject(&EnsureObject(&spec, "template"), "metadata"), "labels");
  const auto add = [&labels](const char* key, const std::string& value) {
    labels.emplace(key, value);
  };
  add("batch.kubernetes.io/controller-uid", uid);
  add("controller-uid", uid);
  add("batch.kubernetes.io/job-name", name);
  add("job-name", name);
  EnsureObject(&EnsureObject(&spec, "selector"), "matchLabels")
      .emplace("batch.kubernetes.io/controller-uid", uid);
  // What is read back has the template's labels where the client gave none.
  if (const Json* own = LabelsOf(*job); own == nullptr || own->empty()) {
    const Json copy = *Find(*job, {"spec", "template", "metadata", "labels"});
    EnsureObject(job, "metadata")["labels"] = copy;
  }
}

}  // namespace sublet::kube::logic
