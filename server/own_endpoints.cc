#include "server/own_endpoints.h"

#include <nlohmann/json.hpp>

namespace sublet::server {
namespace {

using kube::Json;

// Creates the object or replaces what differs.
Result<void> Put(const client::Client& client, const kube::GroupVersionResource& resource,
                 const Json& object) {
  auto created = client.Create({resource, "default", "", ""}, object);
  if (!created.ok() && created.error().Is(Reason::kAlreadyExists)) {
    created =
        client.Patch({resource, "default", "kubernetes", ""}, client::PatchType::kMerge, object);
  }
  if (!created.ok()) {
    return std::move(created).error();
  }
  return Ok();
}

}  // namespace

Result<void> PublishOwnEndpoints(const client::Client& client, const std::string& ip, int port) {
  const Json ports = Json::array({{{"name", "https"}, {"port", port}, {"protocol", "TCP"}}});
  SUBLET_RETURN_IF_ERROR(Put(client, {"", "v1", "endpoints"},
                             {{"apiVersion", "v1"},
                              {"kind", "Endpoints"},
                              {"metadata",
                               {{"name", "kubernetes"},
                                {"namespace", "default"},
                                {"labels", {{"endpointslice.kubernetes.io/skip-mirror", "true"}}}}},
                              {"subsets", Json::array({{{"addresses", Json::array({{{"ip", ip}}})},
                                                        {"ports", ports}}})}}));
  return Put(client, {"discovery.k8s.io", "v1", "endpointslices"},
             {{"apiVersion", "discovery.k8s.io/v1"},
              {"kind", "EndpointSlice"},
              {"metadata",
               {{"name", "kubernetes"},
                {"namespace", "default"},
                {"labels", {{"kubernetes.io/service-name", "kubernetes"}}}}},
              {"addressType", "IPv4"},
              {"ports", ports},
              {"endpoints",
               Json::array({{{"addresses", Json::array({ip})},
                             {"conditions",
                              {{"ready", true}, {"serving", true}, {"terminating", false}}}}})}});
}

}  // namespace sublet::server
