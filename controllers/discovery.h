// Discovery: which resources an API server has, for the controllers that must reach every object
// (garbage collector, namespace deletion, quota counts).
#pragma once

#include <string>
#include <vector>

#include "client/client.h"

namespace sublet::controllers {

struct DiscoveredResource {
  kube::GroupVersionResource resource;  // in the group's preferred version
  std::string kind;
  bool namespaced = false;
  std::vector<std::string> verbs;

  bool Has(std::string_view verb) const;
};

// Every resource (no subresources), core first, then in the order of the groups. A group whose
// documents cannot be had makes the call fail: acting on half a list would leave objects behind.
// Errors: as of the client.
Result<std::vector<DiscoveredResource>> Discover(const client::Client& client);

}  // namespace sublet::controllers
