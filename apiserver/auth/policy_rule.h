// PolicyRule: one RBAC rule, how it matches a question, and whether rules cover other rules (for
// the escalation check). Threads: any; pure. Source: k8s.io/kubernetes
// pkg/apis/rbac/v1/evaluation_helpers.go, pkg/registry/rbac/validation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "apiserver/request.h"
#include "kube/json.h"

namespace sublet::apiserver {

// What is asked of an authorizer.
struct Attributes {
  const User* user = nullptr;
  std::string_view verb;
  bool is_resource = true;
  std::string_view group;
  std::string_view version;
  std::string_view resource;
  std::string_view subresource;
  std::string_view namespace_name;
  std::string_view name;
  std::string_view path;  // of a question about no resource
};

struct PolicyRule {
  std::vector<std::string> verbs;
  std::vector<std::string> api_groups;
  std::vector<std::string> resources;
  std::vector<std::string> resource_names;
  std::vector<std::string> non_resource_urls;
  bool operator==(const PolicyRule&) const = default;
};

// Reads `rules` of a Role or ClusterRole; what is no rule is left out.
std::vector<PolicyRule> ParseRules(const kube::Json* rules);
kube::Json RulesToJson(const std::vector<PolicyRule>& rules);

// A rule with its verbs as bits, so that most rules are passed over by one AND.
class CompiledRule {
 public:
  explicit CompiledRule(PolicyRule rule);
  // `verb_bit` is VerbBit(attributes.verb).
  bool Allows(const Attributes& attributes, std::uint32_t verb_bit) const;
  const PolicyRule& rule() const { return rule_; }

  // A bit for each well-known verb; 0 for others, which are compared as text.
  static std::uint32_t VerbBit(std::string_view verb);

 private:
  bool AllowsResource(const Attributes& attributes) const;

  PolicyRule rule_;
  std::uint32_t verb_bits_ = 0;
  bool any_verb_ = false;
};

// The parts of `wanted` that `held` does not grant, merged and in Kubernetes' compact spelling
// ({APIGroups:["apps"], Resources:["deployments"], Verbs:["get"]}), sorted. Empty: all covered.
// Bounded: of more than 10,000 single questions the rest counts as not held.
std::vector<std::string> MissingRules(const std::vector<PolicyRule>& held,
                                      const std::vector<PolicyRule>& wanted);

}  // namespace sublet::apiserver
