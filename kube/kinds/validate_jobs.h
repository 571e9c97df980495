// What jobs and cron jobs share. Threads: any. Source: k8s.io/kubernetes pkg/apis/batch/validation.
#pragma once

#include "kube/field_error.h"
#include "kube/json.h"
#include "kube/kinds/validate_common.h"

namespace sublet::kube::validate {

// The spec of a job but for its selector.
void JobSpec(const Path& path, const Json& spec, FieldErrors* errors);
void PodFailurePolicy(const Path& path, const Json& job_spec, FieldErrors* errors);
void SuccessPolicy(const Path& path, const Json& job_spec, FieldErrors* errors);
// "1,3-5,7" below `completions`: the problem, "" when there is none, and how many indexes it names.
std::string IndexesProblem(std::string_view text, std::int64_t completions, std::int64_t* total);

}  // namespace sublet::kube::validate
