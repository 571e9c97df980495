// Parts that resource claims, device classes and resource slices share (validate_claim_status.cc).
// Threads: any. Source: k8s.io/kubernetes pkg/apis/resource/validation.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "kube/kinds/validate_common.h"

namespace sublet::kube::validate {

inline constexpr std::size_t kListMax = 32;  // requests, constraints, configs, selectors
inline constexpr std::size_t kTaintsMax = 16;

using ItemRule = std::function<void(const Path&, const Json&)>;

// Each item of a list that is not too long.
void Each(const Path& path, const Json& owner, const char* key, std::size_t max,
          FieldErrors* errors, const ItemRule& rule);
// Names of items, or the items themselves, that occur again.
void Repeated(const Path& path, const Json& owner, const char* key, FieldErrors* errors);
// "name" or "domain/name" of an attribute or a capacity.
void QualifiedName(const Path& path, const std::string& name, FieldErrors* errors);
// The name of a pool: subdomains between slashes.
void PoolName(const Path& path, const std::string& name, FieldErrors* errors);
// A driver's own configuration.
void Config(const Path& at, const Json& config, FieldErrors* errors);
// The names by which constraints, configs and results speak of requests: "a" and "a/b".
std::set<std::string> RequestNames(const Json& devices);
void RequestReference(const Path& path, const std::string& name, const std::set<std::string>& names,
                      FieldErrors* errors);
void RequestReferences(const Path& at, const Json& owner, const std::set<std::string>& names,
                       FieldErrors* errors);

}  // namespace sublet::kube::validate
