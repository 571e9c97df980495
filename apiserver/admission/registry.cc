#include "apiserver/admission/registry.h"

#include <nlohmann/json.hpp>

#include "apiserver/registry/builtin.h"
#include "apiserver/registry/object_codec.h"
#include "kube/object.h"

namespace sublet::apiserver {

AdmissionChain MakeAdmissionChain(const AdmissionEnvironment& environment) {
  AdmissionChain chain;
  chain.Add(NamespaceLifecycle(environment));
  chain.Add(LimitRanger(environment));
  chain.Add(ServiceAccount(environment));
  chain.Add(NodeRestriction(environment));
  chain.Add(TaintNodesByCondition());
  chain.Add(PodSecurity(environment));
  chain.Add(Priority(environment));
  chain.Add(DefaultTolerationSeconds());
  chain.Add(DefaultStorageClass(environment));
  chain.Add(StorageObjectInUseProtection());
  chain.Add(PersistentVolumeClaimResize(environment));
  chain.Add(RuntimeClass(environment));
  chain.Add(CertificateRequests(environment));
  chain.Add(DefaultIngressClass(environment));
  chain.Add(OwnerReferencesPermissionEnforcement(environment));
  // Last: they add writes that commit with the object.
  if (environment.guard_ingress_hosts) {
    chain.Add(IngressHosts(environment));
  }
  chain.Add(ServiceAllocation(environment));
  chain.Add(ResourceQuota(environment));
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

storage::Op ReplaceOp(const AdmissionEnvironment& environment, std::string_view group,
                      std::string_view plural, const storage::Record& record,
                      const kube::Json& object) {
  storage::Op op = CreateOp(environment, group, plural, object);
  op.key = record.key;
  op.expected = record.mod_revision;
  return op;
}

storage::Op CreateOp(const AdmissionEnvironment& environment, std::string_view group,
                     std::string_view plural, const kube::Json& object) {
  const CatalogPtr catalog = environment.catalog->Get();
  const Resource* resource = catalog->FindAnyVersion(group, plural);
  SUBLET_CHECK(resource != nullptr && resource->type != nullptr);
  EncodedObject encoded = EncodeObject(object, *resource->type);
  storage::Op op;
  op.kind = storage::Op::Kind::kPut;
  op.key = resource->type->Key(kube::NamespaceOf(object), kube::NameOf(object));
  op.expected = 0;
  op.bytes = std::move(encoded.bytes);
  op.revision_offset = encoded.revision_offset;
  op.attachment = std::move(encoded.facts);
  return op;
}

bool IsMain(const AdmissionRequest& request, std::string_view group, std::string_view plural) {
  return request.subresource.empty() && request.Is(group, plural);
}

}  // namespace sublet::apiserver
