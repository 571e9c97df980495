// Access: who may use the kubelet API. A client certificate of the cluster's authority or a bearer
// token (TokenReview) says who asks; members of system:masters may do everything, others what a
// SubjectAccessReview for the node's subresources allows. Answers are kept for a while: tokens two
// minutes, permissions five minutes, refusals 30 s.
// Source: kubelet server/auth.go, authentication and authorization webhook defaults.
// Threads: any; blocks for the API server.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "client/client.h"
#include "node/kubelet_api/http_request.h"
#include "node/kubelet_api/tls_connection.h"

namespace sublet::node {

struct AccessUser {
  std::string name;
  std::string uid;
  std::vector<std::string> groups;
};

class Access {
 public:
  Access(client::Client client, std::string node_name, const Clock& clock)
      : client_(std::move(client)), node_name_(std::move(node_name)), clock_(clock) {}

  // Errors: Unauthorized, Forbidden (kubelet's text), those of the API server.
  Result<AccessUser> Check(const PeerIdentity& peer, const KubeletRequest& request);

 private:
  Result<AccessUser> Authenticate(const PeerIdentity& peer, const KubeletRequest& request);
  Result<bool> IsAllowed(const AccessUser& user, const std::string& verb,
                         const std::string& subresource);
  template <typename Value>
  struct Kept {
    Value value;
    MonotonicTime until{};
  };
  static constexpr std::size_t kKeptMax = 4096;

  const client::Client client_;
  const std::string node_name_;
  const Clock& clock_;
  Mutex mutex_;
  std::map<std::string, Kept<AccessUser>> tokens_ SUBLET_GUARDED_BY(mutex_);  // by the token's hash
  std::map<std::string, Kept<bool>> decisions_ SUBLET_GUARDED_BY(mutex_);
};

// The node subresource a request is about ("proxy", "stats", "metrics", "log", "pods", "healthz")
// and its verb. Pure.
std::string SubresourceOf(const KubeletRequest& request);
std::string VerbOf(const KubeletRequest& request);

}  // namespace sublet::node
