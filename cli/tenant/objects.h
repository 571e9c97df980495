// The host objects of one tenant: what `sublet create` applies and `sublet create --print` shows.
// The helm chart in manifests/chart gives the same objects (a test compares them). Pure. Source:
// vCluster's chart objects with our names: namespace sublet-NAME, StatefulSet NAME with container
// `syncer`, Services NAME and NAME-headless, labels app=sublet and release=NAME.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/tenant_config.h"
#include "kube/json.h"

namespace sublet::cli {

struct TenantSpec {
  std::string name;            // DNS label, at most 40 characters
  std::string host_namespace;  // "sublet-NAME" by default
  std::string image;
  std::string values;  // the merged values text: stored in the Secret
  bool create_namespace = true;
  bool persistent = false;  // /data on a volume claim
};

// Errors: BadRequest with what is wrong with the name.
Result<void> CheckTenantName(std::string_view name);

std::string DefaultNamespace(std::string_view name);

// In the order they are applied.
std::vector<kube::Json> TenantObjects(const TenantSpec& spec, const config::TenantConfig& config);

// What `sublet host install` puts on a host once: CRDs of NodeUsage, GpuSlice and GpuNode.
std::vector<kube::Json> HostObjects();
// The controller that publishes NodeUsage, run from `image` in namespace sublet-system.
std::vector<kube::Json> NodeUsageObjects(const std::string& image);

}  // namespace sublet::cli
