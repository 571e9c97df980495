// Parts of a container that have a file of their own (validate_container_parts.cc), for
// validate_container.cc, which puts them in Kubernetes' order. `path` names the list, `at` the
// container. Threads: any. Source: k8s.io/kubernetes pkg/apis/core/validation.
#pragma once

#include <string>
#include <vector>

#include "kube/kinds/validate_common.h"

namespace sublet::kube::validate {

void Ports(const Path& path, const Json& container, FieldErrors* errors);
void Env(const Path& at, const Json& container, FieldErrors* errors);
void Mounts(const Path& at, const Json& container, const std::vector<std::string>& volumes,
            FieldErrors* errors);
void Devices(const Path& at, const Json& container, const std::vector<std::string>& volumes,
             const Json& spec, FieldErrors* errors);
// `grace`: the pod's terminationGracePeriodSeconds.
void Probes(const Path& at, const Json& container, const Json& grace, FieldErrors* errors);

}  // namespace sublet::kube::validate
