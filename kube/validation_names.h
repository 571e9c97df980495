// What a name may look like, with Kubernetes' exact sentences: DNS labels and subdomains, label
// keys and values, port names, environment variables. Every function returns what is wrong, empty
// when nothing is. Threads: any.
// Source: k8s.io/apimachinery pkg/util/validation, pkg/api/validate/content.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::kube {

using Problems = std::vector<std::string>;

Problems IsDns1123Label(std::string_view value);
Problems IsDns1123Subdomain(std::string_view value);
Problems IsDns1123SubdomainWithUnderscore(std::string_view value);
Problems IsDns1035Label(std::string_view value);
Problems IsWildcardDns1123Subdomain(std::string_view value);
Problems IsQualifiedName(std::string_view value);  // label and annotation keys
Problems IsLabelValue(std::string_view value);
Problems IsCIdentifier(std::string_view value);
Problems IsPathSegmentName(std::string_view value);  // RBAC names
Problems IsPortName(std::string_view value);
Problems IsPortNumber(std::int64_t value);
Problems IsInRange(std::int64_t value, std::int64_t min, std::int64_t max);
Problems IsPercent(std::string_view value);
Problems IsHttpHeaderName(std::string_view value);
Problems IsEnvVarName(std::string_view value);         // strict form
Problems IsRelaxedEnvVarName(std::string_view value);  // what containers accept since 1.34
Problems IsConfigMapKey(std::string_view value);
// "10.0.0.1", "fd00::1": what net.ParseIP would take in its canonical decimal form.
Problems IsIpAddress(std::string_view value);
Problems IsCidr(std::string_view value);

std::string MaxLengthProblem(int length);
std::string RangeProblem(std::int64_t low, std::int64_t high);

}  // namespace sublet::kube
