#include "apiserver/admission/registry.h"

#include <nlohmann/json.hpp>

#include "apiserver/registry/builtin.h"
#include "apiserver/registry/object_codec.h"

namespace sublet::apiserver {

AdmissionChain MakeAdmissionChain(const AdmissionEnvironment& environment) {
  AdmissionChain chain;
  chain.Add(NamespaceLifecycle(environment));
  return chain;
}

std::optional<kube::Json> ReadObject(const AdmissionEnvironment& environment,
                                     std::string_view group, std::string_view plural,
                                     std::string_view namespace_name, std::string_view name) {
  std::string key = StoragePrefix({std::string(group), std::string(plural)});
  if (!namespace_name.empty()) {
    key += namespace_name;
    key += '/';
  }
  key += name;
  const auto record = environment.store->Get(key);
  if (!record) {
    return std::nullopt;
  }
  return ParseStored(*record->value);
}

std::vector<storage::Record> ListObjects(const AdmissionEnvironment& environment,
                                         std::string_view group, std::string_view plural,
                                         std::string_view namespace_name) {
  std::string prefix = StoragePrefix({std::string(group), std::string(plural)});
  if (!namespace_name.empty()) {
    prefix += namespace_name;
    prefix += '/';
  }
  auto list = environment.store->List(prefix, "", 0, 0);
  return list.ok() ? std::move(list->records) : std::vector<storage::Record>();
}

}  // namespace sublet::apiserver
