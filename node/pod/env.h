// The environment of a container: values, references to ConfigMaps and Secrets, the downward API,
// variables of Services, and $(NAME) expansion. Pure but for the ObjectSource it asks.
// Source: kubelet makeEnvironmentVariables, third_party/forked/golang/expansion.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "kube/json.h"
#include "node/pod/plan.h"

namespace sublet::node {

// Where ConfigMaps and Secrets come from. Threads: any; may block for the API server.
class ObjectSource {
 public:
  virtual ~ObjectSource() = default;
  // Errors: NotFound, and whatever the client says.
  virtual Result<std::shared_ptr<const kube::Json>> GetConfigMap(const std::string& namespace_name,
                                                                 const std::string& name) = 0;
  virtual Result<std::shared_ptr<const kube::Json>> GetSecret(const std::string& namespace_name,
                                                              const std::string& name) = 0;
};

// What the downward API shows besides the object itself.
struct PodFacts {
  std::string pod_ip;
  std::vector<std::string> host_ips;
  // The node's allocatable amounts, for limits that are not set: {"cpu": "2", "memory": "..."}.
  std::shared_ptr<const kube::Json> allocatable;
};

using Environment = std::vector<std::pair<std::string, std::string>>;

// `$(NAME)` is replaced by the variable, `$$` is a dollar sign, the unknown stays as it is.
std::string ExpandVariables(std::string_view text,
                            const std::map<std::string, std::string>& values);

// The value of a fieldRef: "metadata.name", "metadata.labels['app']", "status.podIP", ...
// Errors: BadRequest (unknown field).
Result<std::string> FieldValue(const PodPlan& plan, const PodFacts& facts, std::string_view path);
// The value of a resourceFieldRef ({containerName, resource, divisor}) as a whole number of
// divisors, rounded up. Errors: BadRequest.
Result<std::string> ResourceValue(const PodPlan& plan, const PodFacts& facts,
                                  const std::string& default_container, const kube::Json& ref);

// The variables in order of definition, later ones winning; `services` come first. Errors: NotFound
// ('configmap "x" not found', "couldn't find key k in Secret ns/x") and the source's own.
Result<Environment> MakeEnvironment(const PodPlan& plan, const ContainerPlan& container,
                                    const PodFacts& facts, const Environment& services,
                                    ObjectSource& objects);

// Base64 as Secrets carry it; bytes that are no base64 end the text.
std::string DecodeBase64(std::string_view text);

}  // namespace sublet::node
