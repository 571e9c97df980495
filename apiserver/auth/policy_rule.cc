#include "apiserver/auth/policy_rule.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "kube/field_error.h"

namespace sublet::apiserver {
namespace {

constexpr std::array<std::string_view, 13> kVerbs = {
    "get",         "list", "watch",    "create", "update", "patch", "delete", "deletecollection",
    "impersonate", "bind", "escalate", "use",    "approve"};
constexpr std::size_t kQuestionsMax = 10000;

std::vector<std::string> TextsOf(const kube::Json& rule, const char* member) {
  std::vector<std::string> out;
  const auto found = rule.find(member);
  if (found != rule.end() && found->is_array()) {
    for (const auto& item : *found) {
      if (item.is_string()) {
        out.push_back(item.get<std::string>());
      }
    }
  }
  return out;
}

bool Contains(const std::vector<std::string>& list, std::string_view item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

bool HasOrStar(const std::vector<std::string>& list, std::string_view item) {
  return std::any_of(list.begin(), list.end(),
                     [&](const auto& entry) { return entry == "*" || entry == item; });
}

// `entry` is "pods", "pods/log", "*/scale" or "*"; the question is resource and subresource.
bool ResourceMatches(std::string_view entry, std::string_view resource,
                     std::string_view subresource) {
  if (entry == "*") {
    return true;
  }
  if (subresource.empty()) {
    return entry == resource;
  }
  const auto slash = entry.find('/');
  return slash != std::string_view::npos && entry.substr(slash + 1) == subresource &&
         (entry.substr(0, slash) == resource || entry.substr(0, slash) == "*");
}

bool PathMatches(std::string_view pattern, std::string_view path) {
  if (pattern == "*" || pattern == path) {
    return true;
  }
  if (!pattern.ends_with('*')) {
    return false;
  }
  while (pattern.ends_with('*')) {
    pattern.remove_suffix(1);
  }
  return path.starts_with(pattern);
}

// One question a rule can be broken into: a single verb, group, resource and name, or a verb and
// URL.
struct Question {
  std::string verb;
  std::string group;
  std::string resource;
  std::string name;
  std::string url;
  bool has_name = false;
  bool is_url = false;
};

std::vector<Question> Break(const PolicyRule& rule) {
  std::vector<Question> questions;
  for (const auto& verb : rule.verbs) {
    for (const auto& group : rule.api_groups) {
      for (const auto& resource : rule.resources) {
        if (rule.resource_names.empty()) {
          questions.push_back({verb, group, resource, "", "", false, false});
        }
        for (const auto& name : rule.resource_names) {
          questions.push_back({verb, group, resource, name, "", true, false});
        }
        if (questions.size() > kQuestionsMax) {
          return questions;
        }
      }
    }
    for (const auto& url : rule.non_resource_urls) {
      questions.push_back({verb, "", "", "", url, false, true});
    }
  }
  return questions;
}

bool CoversResource(const std::vector<std::string>& held, std::string_view wanted) {
  if (HasOrStar(held, wanted)) {
    return true;
  }
  const auto slash = wanted.find('/');
  return slash != std::string_view::npos && Contains(held, "*" + std::string(wanted.substr(slash)));
}

bool Covers(const PolicyRule& rule, const Question& question) {
  if (!HasOrStar(rule.verbs, question.verb)) {
    return false;
  }
  if (question.is_url) {
    return std::any_of(rule.non_resource_urls.begin(), rule.non_resource_urls.end(),
                       [&](const auto& pattern) { return PathMatches(pattern, question.url); });
  }
  return HasOrStar(rule.api_groups, question.group) &&
         CoversResource(rule.resources, question.resource) &&
         (rule.resource_names.empty() ||
          (question.has_name && Contains(rule.resource_names, question.name)));
}

std::string QuotedList(std::string_view label, const std::vector<std::string>& items) {
  std::string text(label);
  text += ":[";
  for (std::size_t i = 0; i < items.size(); ++i) {
    text += (i == 0 ? "" : " ") + kube::GoQuote(items[i]);
  }
  return text + "]";
}

std::string Compact(const PolicyRule& rule) {
  std::vector<std::string> parts;
  for (const auto& [label, items] :
       {std::pair<std::string_view, const std::vector<std::string>*>{"APIGroups", &rule.api_groups},
        {"Resources", &rule.resources},
        {"NonResourceURLs", &rule.non_resource_urls},
        {"ResourceNames", &rule.resource_names},
        {"Verbs", &rule.verbs}}) {
    if (!items->empty()) {
      parts.push_back(QuotedList(label, *items));
    }
  }
  return "{" + kube::Join(parts, ", ") + "}";
}

}  // namespace

std::vector<PolicyRule> ParseRules(const kube::Json* rules) {
  std::vector<PolicyRule> out;
  if (rules == nullptr || !rules->is_array()) {
    return out;
  }
  for (const auto& rule : *rules) {
    if (rule.is_object()) {
      out.push_back({TextsOf(rule, "verbs"), TextsOf(rule, "apiGroups"), TextsOf(rule, "resources"),
                     TextsOf(rule, "resourceNames"), TextsOf(rule, "nonResourceURLs")});
    }
  }
  return out;
}

kube::Json RulesToJson(const std::vector<PolicyRule>& rules) {
  kube::Json out = kube::Json::array();
  for (const PolicyRule& rule : rules) {
    kube::Json item = kube::Json::object();
    item["verbs"] = rule.verbs;
    auto add = [&item](const char* member, const std::vector<std::string>& list) {
      if (!list.empty()) {
        item[member] = list;
      }
    };
    add("apiGroups", rule.api_groups);
    add("resources", rule.resources);
    add("resourceNames", rule.resource_names);
    add("nonResourceURLs", rule.non_resource_urls);
    out.push_back(std::move(item));
  }
  return out;
}

std::uint32_t CompiledRule::VerbBit(std::string_view verb) {
  for (std::size_t i = 0; i < kVerbs.size(); ++i) {
    if (kVerbs[i] == verb) {
      return 1u << i;
    }
  }
  return 0;
}

CompiledRule::CompiledRule(PolicyRule rule) : rule_(std::move(rule)) {
  for (const auto& verb : rule_.verbs) {
    any_verb_ = any_verb_ || verb == "*";
    verb_bits_ |= VerbBit(verb);
  }
}

bool CompiledRule::AllowsResource(const Attributes& attributes) const {
  return std::any_of(rule_.resources.begin(), rule_.resources.end(),
                     [&](const std::string& entry) {
                       return ResourceMatches(entry, attributes.resource, attributes.subresource);
                     }) &&
         HasOrStar(rule_.api_groups, attributes.group) &&
         (rule_.resource_names.empty() || Contains(rule_.resource_names, attributes.name));
}

bool CompiledRule::Allows(const Attributes& attributes, std::uint32_t verb_bit) const {
  const bool verb_matches = any_verb_ || (verb_bit != 0 ? (verb_bits_ & verb_bit) != 0
                                                        : Contains(rule_.verbs, attributes.verb));
  if (!verb_matches) {
    return false;
  }
  if (attributes.is_resource) {
    return AllowsResource(attributes);
  }
  return std::any_of(
      rule_.non_resource_urls.begin(), rule_.non_resource_urls.end(),
      [&](const std::string& pattern) { return PathMatches(pattern, attributes.path); });
}

std::vector<std::string> MissingRules(const std::vector<PolicyRule>& held,
                                      const std::vector<PolicyRule>& wanted) {
  // Missing single questions, merged again by what they are about: verbs side by side.
  std::map<std::tuple<std::string, std::string, std::string, bool>, PolicyRule> resources;
  std::vector<PolicyRule> others;
  std::size_t asked = 0;
  for (const PolicyRule& rule : wanted) {
    for (const Question& question : Break(rule)) {
      const bool covered = ++asked <= kQuestionsMax &&
                           std::any_of(held.begin(), held.end(), [&](const PolicyRule& one) {
                             return Covers(one, question);
                           });
      if (covered) {
        continue;
      }
      if (question.is_url) {
        others.push_back({{question.verb}, {}, {}, {}, {question.url}});
        continue;
      }
      PolicyRule& merged =
          resources[{question.group, question.resource, question.name, question.has_name}];
      merged.api_groups = {question.group};
      merged.resources = {question.resource};
      if (question.has_name) {
        merged.resource_names = {question.name};
      }
      if (!Contains(merged.verbs, question.verb)) {
        merged.verbs.push_back(question.verb);
      }
    }
  }
  std::vector<std::string> texts;
  for (const auto& entry : resources) {
    texts.push_back(Compact(entry.second));
  }
  for (const PolicyRule& rule : others) {
    texts.push_back(Compact(rule));
  }
  std::sort(texts.begin(), texts.end());
  return texts;
}

}  // namespace sublet::apiserver
